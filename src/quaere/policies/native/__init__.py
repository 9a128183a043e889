"""The native engine: torch and transformers on a CPU or one GPU, with continuous batching.

bridge          the only file that touches transformers' internals: loading, forward passes, fused modules
attention_spec  the attention parameters of a layer
attention       attention over the KV cache of slots, in prefill and in decode
kernels         the same on a GPU; fused: the operations between matrix products there
cpu_matmul      matrix products of linear layers on a CPU, and their weights in eight bits
llama_step      a quick forward pass of Llama-shaped models on a CPU
varlen          attention within many sequences packed end to end, for training
storage         the KV cache of all slots; slots: which session holds which slot, and which prefix it has
decoder         the state of every slot on the device, and one decode step for all (a CUDA graph on a GPU)
sampling        logits to tokens, with a seed per request; stop_strings: detection of stop strings
engine          rows join, are stepped together, and leave (a plain state machine: no threads, no asyncio)
sampler         the asynchronous interface of the engine: a `TokenSampler`
"""
