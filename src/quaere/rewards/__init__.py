"""Reward functions: pure functions from texts and counts to numbers."""
