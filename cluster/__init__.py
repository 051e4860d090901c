"""How jobs are started: the `submit` command and its executors. The only place that knows SLURM."""
