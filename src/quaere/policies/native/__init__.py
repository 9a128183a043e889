"""The native engine: torch and transformers on a CPU or one GPU, with continuous batching.

bridge          the only file that touches transformers' internals: loading, forward passes, fused modules
weights         rounding, adapters merged, weights in eight bits, and the matrix products of linear layers
attention       attention over the KV cache of slots, and within many sequences packed end to end, for training
kernels         the same on a GPU; fused: the operations between matrix products there
llama_step      a quick forward pass of Llama-shaped models on a CPU
plain           models whose rows cannot be packed: their own forward pass; row_caches: their caches
slots           which session holds which slot and which prefix it has, and the KV cache of all slots
decoder         the state of every slot on the device, one decode step for all (a CUDA graph on a GPU), sampling
engine          rows join, are stepped together, and leave (a plain state machine: no threads, no asyncio)
sequence_logprobs  log-probs of given tokens
sampler         the asynchronous interface of the engine: a `TokenSampler`
device          the choice of device and precision
"""
