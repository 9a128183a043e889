"""Dialects: the prompts, protocol and reward of each way to talk to a policy, one file each, a folder for reports.

`registry.py` lists the dialects; CONTRIBUTING.md shows how to add one.
"""
