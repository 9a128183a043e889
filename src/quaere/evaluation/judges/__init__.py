"""Judges: models and rules that grade text, and how accurate they are."""
