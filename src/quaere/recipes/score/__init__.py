"""SCORE: one model writes research reports and judges them, within rules that follow how the training goes."""
