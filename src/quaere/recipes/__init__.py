"""Recipes, one folder per paper: config, prompts, and a `train.py` that follows the paper's algorithm."""
