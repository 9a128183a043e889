"""The closed-book dialect: one answer without any search."""
