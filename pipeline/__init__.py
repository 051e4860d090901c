"""What a representation, a head, a metric is. Knows no SLURM, no command line, no environment variable."""
