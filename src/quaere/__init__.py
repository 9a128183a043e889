"""Quaere: turn a folder of documents into a search agent that can show the sentence behind its answers."""

__version__ = "0.2.0.dev0"
