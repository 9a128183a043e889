"""Policies: the sampler interfaces, the model catalogue, and the engines that sample."""
