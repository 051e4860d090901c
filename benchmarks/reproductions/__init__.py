"""Experiments of papers whose truth is known, repeated with the losses of this package.

``python -m benchmarks.reproductions.controlled`` and ``python -m benchmarks.reproductions.n_digits``; settings are in
``configs/reproduction/``, results in ``docs/results/``.
"""
