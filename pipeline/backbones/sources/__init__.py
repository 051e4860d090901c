"""What makes networks, one file a source, found by file name (``backbone.source``)."""
