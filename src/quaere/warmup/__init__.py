"""Warm-up: supervised training of a small model on demonstrated episodes, before it trains itself."""
