"""Dialects: text formats of a policy's turns, each with prompts, protocol and reward; a file each, reports a folder.

`registry.py` lists the dialects; CONTRIBUTING.md shows how to add one.
"""
