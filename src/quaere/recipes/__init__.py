"""Recipes, one file per paper (config, reward, loop, registration) that follows the paper's algorithm."""
