"""What others are compared with: Search-R1 and AutoRefine, on the same questions and by the same update."""
