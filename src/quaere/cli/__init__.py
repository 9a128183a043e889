"""What a person types. Thin: every command parses its words, calls the floors below, and prints."""
