"""What others are compared with, on the same questions: Search-R1 and AutoRefine; reports under a fixed judge."""
