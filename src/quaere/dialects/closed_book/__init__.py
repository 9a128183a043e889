"""Answers without any search."""
