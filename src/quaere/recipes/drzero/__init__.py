"""Dr. Zero: a proposer writes questions that a solver answers only sometimes; both learn, without any data."""
