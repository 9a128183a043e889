"""Learning: one gradient step, weights on their way to the sampler, checkpoints."""
