"""Dialects: the prompts, protocol and reward of each way to talk to a policy, one folder per dialect.

`registry.py` lists the dialects; CONTRIBUTING.md shows how to add one.
"""
