"""From a representation store to trained heads: the one loop, its state on disk, and heads on disk."""
