"""Dr. Zero: a proposer writes questions a solver can barely answer, and both learn from it, without any data."""
