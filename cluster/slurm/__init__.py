"""SLURM: what is asked of it, how work is cut into its jobs, and what runs inside them.

``cluster/executors/slurm.py`` is the executor; nothing outside of it and of this package knows SLURM.
"""
