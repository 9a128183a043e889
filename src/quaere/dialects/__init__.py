"""How a policy is spoken to, and what it is paid for: one folder for each dialect.

See `registry.py` for the dialects there are, and CONTRIBUTING.md for how to add one.
"""
