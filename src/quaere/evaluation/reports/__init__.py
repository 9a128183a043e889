"""Evaluation of research reports."""
