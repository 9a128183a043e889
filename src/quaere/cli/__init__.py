"""The command line. Each command parses its options, calls the packages below, and prints the result."""
