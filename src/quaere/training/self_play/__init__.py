"""What recipes with a proposer and a solver share: Dr. Zero, and EVE-Agent, which adds evidence to it."""
