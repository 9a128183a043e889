"""Values in, numbers out: pure functions that score what a policy did."""
