"""Eval-RAR: after every search the solver writes what it found or what is missing, and may be paid for that."""
