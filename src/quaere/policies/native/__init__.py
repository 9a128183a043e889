"""The native engine: torch and transformers on a CPU or one GPU, with continuous batching.

bridge          the only file that touches transformers' internals: loading, forward passes, fused modules
weights         rounding of weights, and adapters merged into them
attention       attention over the KV cache of slots, in prefill and in decode, and its parameters per layer
kernels         the same on a GPU; fused: the operations between matrix products there
products        matrix products of linear layers: merged ones, and those of a CPU with weights in eight bits
llama_step      a quick forward pass of Llama-shaped models on a CPU
varlen          attention within many sequences packed end to end, for training
plain           models whose rows cannot be packed: their own forward pass; row_caches: their caches
slots           which session holds which slot and which prefix it has, and the KV cache of all slots
decoder         the state of every slot on the device, one decode step for all (a CUDA graph on a GPU), sampling
engine          rows join, are stepped together, and leave (a plain state machine: no threads, no asyncio)
sequence_logprobs  log-probs of given tokens
sampler         the asynchronous interface of the engine: a `TokenSampler`
device          the choice of device and precision
"""
