"""Quaere: turn a folder of documents into a search agent that can show the sentence behind its answers."""

__version__ = "0.1.0"
