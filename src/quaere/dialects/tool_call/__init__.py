"""JSON calls in tags: Dr. Zero, and with evidence EVE-Agent."""
