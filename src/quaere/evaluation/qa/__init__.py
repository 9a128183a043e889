"""Scores of short answers."""
