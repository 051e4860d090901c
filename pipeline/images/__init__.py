"""Images: packing, strict tar reading, decoding, and the views that are made of one decode."""
