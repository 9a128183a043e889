"""Evaluation of evidence: how much a quoted span raises the probability of the right answer."""
