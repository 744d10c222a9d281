"""Gymnasium environments: making them, whole episodes in them, recordings and films."""
