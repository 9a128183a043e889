"""One paper, one folder: config, prompts, and a `train.py` that reads like the paper's algorithm."""
