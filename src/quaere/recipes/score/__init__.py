"""SCORE: one model writes research reports and assesses them; the rules for it adapt to the training's statistics."""
