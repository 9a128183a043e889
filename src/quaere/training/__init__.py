"""Training: learner, roles over one sampling copy, checkpoints, and the loop around every step."""
