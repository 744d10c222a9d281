"""A grid of runs: suites as data, on the cores of this machine or on a Ray cluster."""
