"""The tag dialects Search-R1, Eval-RAR and AutoRefine: queries and notes between tags."""
