"""Frozen backbones: image → embedding and logits."""
