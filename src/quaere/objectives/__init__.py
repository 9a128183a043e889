"""Tensors in, tensors out: from rewards to advantages, and from advantages to a loss. No model, no files."""
