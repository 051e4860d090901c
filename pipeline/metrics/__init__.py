"""Metrics: pure functions of arrays, one file a theme; what is undefined says why."""
