"""Images → representations: read a tar, decode each image once, make all its views, run the frozen backbones, commit.

Upstream and downstream collections go through this very code, so their representations are comparable.
"""
