"""Keys and values of the rows in flight, one slot per row.

Row `i` of the batch lives in slot `i`, so the slots in use are always `0..n-1` and attention reads them as one view,
without copying. When a row leaves, the last row moves into its slot.
"""

from __future__ import annotations

from msgspec import Struct
from torch import Tensor


class Span(Struct, frozen=True):
    """Tokens of one row inside a packed step: `packed[offset:offset+length]` are its positions `start..start+length`.

    Span(slot=2, start=117, length=1, offset=2)      # row 2 decodes its 118th token
    """

    slot: int
    start: int
    length: int
    offset: int


class KVStorage:
    """Per layer, keys and values as `(slots, heads, capacity, head_dim)`; grows, keeps what it holds.

    New memory is zeroed: attention reads padded rows and masks what lies beyond their end, but a stray NaN there would
    survive the mask.
    """

    def __init__(self) -> None:
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._num_slots = 0
        self._capacity = 0

    def reserve(self, num_slots: int, capacity: int) -> None:
        """Make room for so many rows of so many tokens. Layers are allocated when they first write."""
        if num_slots <= self._num_slots and capacity <= self._capacity:
            return
        # Grow in strides, so that one more row or a few more tokens do not copy everything again.
        self._num_slots = max(self._num_slots, 1 << (num_slots - 1).bit_length())
        self._capacity = max(self._capacity, -(-capacity // 256) * 256)
        for tensors in (self._keys, self._values):
            for layer, old in tensors.items():
                tensors[layer] = self._grown(old)

    def _grown(self, old: Tensor) -> Tensor:
        slots, heads, capacity, head_dim = old.shape
        new = old.new_zeros(self._num_slots, heads, self._capacity, head_dim)
        new[:slots, :, :capacity] = old
        return new

    def write(self, layer: int, key: Tensor, value: Tensor, spans: list[Span]) -> tuple[Tensor, Tensor]:
        """Store the packed `(1, heads, tokens, head_dim)` keys and values of a step; returns the layer's storage."""
        if layer not in self._keys:
            shape = (self._num_slots, key.shape[1], self._capacity)
            self._keys[layer] = key.new_zeros(*shape, key.shape[3])
            self._values[layer] = value.new_zeros(*shape, value.shape[3])
        keys, values = self._keys[layer], self._values[layer]
        for span in spans:
            source = slice(span.offset, span.offset + span.length)
            target = slice(span.start, span.start + span.length)
            keys[span.slot, :, target] = key[0, :, source]
            values[span.slot, :, target] = value[0, :, source]
        return keys, values

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` tokens to another slot."""
        for tensors in (self._keys, self._values):
            for tensor in tensors.values():
                tensor[target, :, :length] = tensor[source, :, :length]
