"""What evidence is worth."""
