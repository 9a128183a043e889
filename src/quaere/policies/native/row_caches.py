"""transformers' caches of the slots of the plain path, one by one or several stacked in one.

    caches = RowCaches()
    caches.put(0, cache)
    caches.stack([0, 1], lengths=[9, 5]).num_padded == [0, 4]

Keys and values of a shorter row are padded on the left; the states of convolutions, linear attention and state spaces
have one size. Rows stay stacked as long as the same ones are decoded, since stacking copies all of them.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from quaere.policies.native.kv_cache import KVStorage

# Layers of a cache whose rows can be stacked. The rows of a sliding window would be cut at different places.
_STACKED = {"DynamicLayer", "LinearAttentionLayer", "LinearAttentionAndFullAttentionLayer"}
Join = Callable[[list[Tensor]], Tensor]


class Stack(Struct, frozen=True):
    """The caches of several slots in one; the first `num_padded` tokens of each row are padding.

    Stack(slots=[0, 1], num_padded=[0, 4], cache=DynamicCache(...))
    """

    slots: list[int]
    num_padded: list[int]
    cache: Any


class RowCaches(KVStorage):
    """The cache of every slot, as the model made it; those of the rows that were decoded last are stacked."""

    def __init__(self) -> None:
        super().__init__()
        self._single: dict[int, Any] = {}
        self._stack: Stack | None = None

    def reserve(self, num_slots: int, capacity: int, stored: Mapping[int, int]) -> None:
        """Drop the caches of slots that hold nothing; caches grow by themselves."""
        self._unstack()
        self._single = {slot: cache for slot, cache in self._single.items() if slot in stored}

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """Not possible: a part of a state cannot be copied, and `SlotTable(whole=True)` never asks for it."""
        raise NotImplementedError

    def put(self, slot: int, cache: Any) -> None:
        """Set the cache of a slot."""
        self._unstack()
        self._single[slot] = cache

    def get(self, slot: int) -> Any:
        """The cache of a slot."""
        self._unstack()
        return self._single[slot]

    def stack(self, slots: list[int], lengths: list[int]) -> Stack:
        """The caches of these slots, which hold this many tokens, as one."""
        if self._stack is None or self._stack.slots != slots:
            self._unstack()
            longest = max(lengths)
            cache = _rebuild([self._single.pop(slot) for slot in slots], _cat_padded, torch.cat)
            self._stack = Stack(slots, [longest - length for length in lengths], cache)
        return self._stack

    def _unstack(self) -> None:
        if self._stack is not None:
            for row, (slot, num_padded) in enumerate(zip(self._stack.slots, self._stack.num_padded, strict=True)):
                self._single[slot] = _pick_row(self._stack.cache, row, num_padded)
            self._stack = None


def can_stack(cache: Any) -> bool:
    """True if caches of this kind can be stacked, by the kinds of their layers."""
    return {type(layer).__name__ for layer in getattr(cache, "layers", [None])} <= _STACKED


def has_attention(cache: Any) -> bool:
    """True if the cache has keys, so that rows of different lengths need a mask."""
    return any(getattr(layer, "keys", None) is not None for layer in cache.layers)


def _pick_row(cache: Any, row: int, num_padded: int) -> Any:
    """One row of a stacked cache as a cache of its own, without the row's padding."""
    own = slice(row, row + 1)
    return _rebuild([cache], lambda parts: parts[0][own, :, num_padded:].clone(), lambda parts: parts[0][own].clone())


def _cat_padded(parts: list[Tensor]) -> Tensor:
    longest = max(part.shape[-2] for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, 0, longest - part.shape[-2], 0)) for part in parts])


def _rebuild(caches: Sequence[Any], join_keys: Join, join_states: Join) -> Any:
    """A cache of the first one's kind whose tensors are made from those of all, layer by layer."""
    made = copy.copy(caches[0])
    made.layers = []
    for layers in zip(*(cache.layers for cache in caches), strict=True):
        layer = copy.copy(layers[0])
        for name, value in vars(layers[0]).items():
            values = [getattr(one, name) for one in layers]
            if name in ("keys", "values") and value is not None:
                setattr(layer, name, join_keys(values))
            elif isinstance(value, dict):  # the states of a layer by their number, and what is known of each
                parts = {number: [one[number] for one in values] for number in value}
                joined = {n: join_states(all) if isinstance(all[0], Tensor) else all[0] for n, all in parts.items()}
                setattr(layer, name, joined)
        made.layers.append(layer)
    return made
