"""Evaluation of short answers."""
