"""Choosing a head's settings on classes that it is not trained on; the search spaces are the heads' own."""
