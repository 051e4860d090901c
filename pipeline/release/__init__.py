"""A released model: a folder that a stranger loads in two lines."""
