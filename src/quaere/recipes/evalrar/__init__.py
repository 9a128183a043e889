"""Eval-RAR: after every search the solver notes what it found or what is missing, and a note may earn a reward."""
