"""Markups in which models write tool calls and thoughts: one reader each, chosen from the chat template."""
