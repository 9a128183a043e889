"""KV cache of all slots, per layer.

A slot holds the keys and values of one conversation's tokens, from position 0 on. `slots` decides which conversation
has which slot; this module only manages the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from quaere.policies.native.device import has_kernels

STRIDE = 512  # tokens


class Span(Struct, frozen=True):
    """Tokens of one slot in a packed pass: `packed[offset:offset+length]` are its positions `start..start+length`.

    Span(slot=2, start=117, length=40, offset=16)      # tokens 117 to 156 of slot 2, after 16 tokens of others
    """

    slot: int
    start: int
    length: int
    offset: int


class KVStorage:
    """Keys and values per layer as `(slots, heads, capacity, head_dim)`; grows without losing its content.

    Layers are allocated at their first write. `version` changes when memory was reallocated: addresses held elsewhere
    are then invalid. Unwritten memory is zero: attention over padded slots masks it, but a NaN there would survive the
    mask.
    """

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self.num_slots = 0
        self.capacity = 0
        self.version = 0

    def reserve(self, num_slots: int, capacity: int, stored: Mapping[int, int]) -> None:
        """Allocate space for this many slots of `capacity` tokens; `stored` is the number of tokens per slot to keep.

        On a CPU, memory that is never written to is not allocated by the system, so unused slots cost nothing.
        """
        if num_slots <= self.num_slots and capacity <= self.capacity:
            return
        self.num_slots = max(self.num_slots, num_slots)
        # The capacity grows in strides, so that a few more tokens do not reallocate everything.
        self.capacity = max(self.capacity, -(-capacity // STRIDE) * STRIDE)
        self.version += 1
        for layer, (keys, values) in self.layers.items():
            self.layers[layer] = self._grown(keys, stored), self._grown(values, stored)

    def _grown(self, old: Tensor, stored: Mapping[int, int]) -> Tensor:
        new = _zeros((self.num_slots, old.shape[1], self.capacity, old.shape[3]), old)
        for slot, length in stored.items():
            new[slot, :, :length] = old[slot, :, :length]
        return new

    def write(self, layer: int, key: Tensor, value: Tensor, slots: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Store the packed `(1, heads, tokens, head_dim)` keys and values of a pass; returns the layer's memory."""
        keys, values = self.memory(layer, key, value)
        if has_kernels(key.device):
            from quaere.policies.native import fused

            fused.write_slots(keys, values, key, value, slots, positions)
        else:
            keys[slots, :, positions] = key[0].transpose(0, 1)
            values[slots, :, positions] = value[0].transpose(0, 1)
        return keys, values

    def memory(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's memory; it is allocated for `(1, heads, tokens, head_dim)` like these if there is none."""
        if layer not in self.layers:
            shape = (self.num_slots, key.shape[1], self.capacity)
            self.layers[layer] = _zeros((*shape, key.shape[3]), key), _zeros((*shape, value.shape[3]), value)
        return self.layers[layer]

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """Copy the first `length` tokens of a slot to other slots."""
        for memory in self.layers.values():
            for tensor in memory:
                tensor[list(targets), :, :length] = tensor[source, :, :length]


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A zero tensor. On a CPU numpy gets pages that are zero already, which cost nothing until they are used."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    plain = np.zeros(shape, dtype=f"i{like.element_size()}")
    return torch.from_numpy(plain).view(like.dtype)
