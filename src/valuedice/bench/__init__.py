"""Measures the speed of an update against the limit of the machine."""
