"""The native engine: torch and transformers on a CPU or one GPU, with continuous batching.

bridge    the only file that touches transformers' internals: loading, and attention over our own K/V storage
varlen    attention within many sequences packed end to end, for training
storage   the keys and values of every row in flight
engine    rows join, are stepped together, and leave (no threads, no asyncio: a plain state machine)
picking   logits to tokens, with a seed per request
sampler   the asynchronous face of it all: a `TokenSampler`
"""
