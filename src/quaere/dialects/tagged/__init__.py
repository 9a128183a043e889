"""Queries and notes in tags: Search-R1, Eval-RAR, AutoRefine."""
