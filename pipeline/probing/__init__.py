"""A linear probe over cached representations: task losses out of fold, for backbones without a class head."""
