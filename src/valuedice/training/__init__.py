"""A training run: its settings, the loop, and the folder that it leaves."""
