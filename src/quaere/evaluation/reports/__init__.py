"""Scores of research reports."""
