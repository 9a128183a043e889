"""Where facts come from: reading documents, cutting them into passages, finding the passages that answer a query."""
