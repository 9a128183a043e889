"""Evaluation of policies: greedy episodes over a question set, scores with intervals, paired comparisons."""
