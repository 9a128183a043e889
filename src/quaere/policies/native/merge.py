"""Linear layers with the same input, computed as one matrix product.

A model multiplies a token's states by the weights of query, key and value in turn, and by those of gate and up. In a
small model's decode step each product is a kernel too short to occupy a GPU; one product over all these weights
occupies it better and needs fewer launches.

    merge([attention.q_proj, attention.k_proj, attention.v_proj])

The layers keep their names. Their weights become views of one matrix, so that new weights copied into them reach it and
nothing is stored twice. The model calls its layers as before: the first one called with some states computes the
product for all, and the others return their slice of it. This is for sampling only: there are no gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear


class _Waiting(NamedTuple):
    """Results computed for the other layers, until these are called with the same states."""

    states: Tensor
    parts: dict[int, Tensor]


class _Merged:
    """A group of layers and the matrix that their weights are views of."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        self.layers = list(layers)
        self.sizes = [layer.out_features for layer in layers]
        self.weight = join_rows([layer.weight for layer in layers])
        self.bias = None if layers[0].bias is None else join_rows([layer.bias for layer in layers])
        self._places = self._where_weights_lie()
        self._waiting: _Waiting | None = None

    def forward(self, number: int, states: Tensor) -> Tensor:
        """Output of layer `number` for the states."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.states is states and number in waiting.parts:
            part = waiting.parts.pop(number)
            if waiting.parts:  # after the last layer nothing is kept
                self._waiting = waiting
            return part
        if self._places != self._where_weights_lie():
            layer = self.layers[number]
            return linear(states, layer.weight, layer.bias)
        parts = dict(enumerate(linear(states, self.weight, self.bias).split(self.sizes, -1)))
        part = parts.pop(number)
        self._waiting = _Waiting(states, parts)
        return part

    def _where_weights_lie(self) -> list[int]:
        """Addresses of the weights; they change if the model was moved, copied or given weights outside the matrix."""
        tensors = [tensor for layer in self.layers for tensor in (layer.weight, layer.bias) if tensor is not None]
        return [tensor.data_ptr() for tensor in tensors]


def merge(layers: Sequence[Any]) -> bool:
    """Merge linear layers that have the same input; returns False if they cannot be merged or are merged already.

    Layers with a forward function of their own (int8 weights, layers spread over devices, merged layers) are not
    changed.
    """
    plain = [layer for layer in layers if type(layer) is Linear and "forward" not in vars(layer)]
    kinds = {(layer.in_features, layer.weight.dtype, layer.weight.device, layer.bias is None) for layer in plain}
    if len(plain) != len(layers) or len({id(layer) for layer in plain}) != len(layers) or len(kinds) != 1:
        return False
    merged = _Merged(plain)
    for number, layer in enumerate(plain):
        layer.forward = partial(merged.forward, number)
    return True


def join_rows(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of all rows; the tensors become views of it, and their own memory is freed."""
    whole = torch.cat([tensor.detach() for tensor in tensors])
    for tensor, part in zip(tensors, whole.split([len(tensor) for tensor in tensors]), strict=True):
        tensor.data = part
    return whole
