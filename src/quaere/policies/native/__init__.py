"""The native engine: torch and transformers on a CPU or one GPU, with continuous batching.

bridge     the only file that touches transformers' internals: loading, forward passes, fused modules
kinds      how a layer wants its attention
attention  attention over slots, for passes that prefill and passes that decode
kernels    the same on a GPU; fused: the small steps between matrix products there
products   how linear layers multiply on a CPU, with weights as bytes if asked to
varlen     attention within many sequences packed end to end, for training
storage    the keys and values of every slot; slots: who holds which, and what it begins with
decoding   the state of every slot on the device, and one step of all of them (a captured graph on a GPU)
picking    logits to tokens, with a seed per request; stopping: has a stop string appeared?
engine     rows join, are stepped together, and leave (no threads, no asyncio: a plain state machine)
sampler    the asynchronous face of it all: a `TokenSampler`
"""
