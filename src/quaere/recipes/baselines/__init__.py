"""Baselines on the same questions: Search-R1 and AutoRefine, and reports graded by a fixed judge."""
