"""Retrieval: readers of documents, chunking into passages, search engines, indexes, and the search server's client."""
