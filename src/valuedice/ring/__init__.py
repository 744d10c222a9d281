"""The Ring MDP of the paper, solved exactly."""
