"""The parts of a Llama-shaped model that a forward pass on a CPU needs, with joined products.

`bridge.read_llama` reads them from a model of transformers. Query, key and value are one product, and so are gate and
up: their weights become views of one matrix, so that new weights copied into the model reach it.

Legend: T tokens, D size of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear

from quaere.policies.native.attention_spec import Kind
from quaere.policies.native.cpu_matmul import multiply
from quaere.policies.native.merge import join_rows
from quaere.policies.native.packed import Packed, pack


class Norm(NamedTuple):
    """An RMS norm.

    Norm(weight=tensor of (576,), epsilon=1e-5)
    """

    weight: Tensor
    epsilon: float


class LayerParts(NamedTuple):
    """A decoder layer; `head_norms` are those of queries and keys, if it has them.

    LayerParts(norm, [q_proj, k_proj, v_proj], None, o_proj, norm, [gate_proj, up_proj], down_proj, Kind(0.125))
    """

    attention_norm: Norm
    query_key_value: Sequence[Linear]
    head_norms: tuple[Norm, Norm] | None
    attention_output: Linear
    mlp_norm: Norm
    gate_up: Sequence[Linear]
    down: Linear
    kind: Kind


class LlamaParts(NamedTuple):
    """A whole model. `angles` returns cosines and sines, `(1, T, D)`, of positions `(1, T)` for states of a dtype.

    LlamaParts(embedding, layers, norm, head, angles, num_heads=9, num_key_heads=3, head_dim=64)
    """

    embedding: Tensor
    layers: Sequence[LayerParts]
    norm: Norm
    head: Linear
    angles: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    num_heads: int
    num_key_heads: int
    head_dim: int


class Product:
    """The product with the weights of one linear layer, or of several that have the same input."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        # Tied to the embedding, the weight of a single layer stays where it is.
        is_single, biases = len(layers) == 1, [layer.bias for layer in layers if layer.bias is not None]
        self.weight = layers[0].weight.detach() if is_single else join_rows([layer.weight for layer in layers])
        self.bias = join_rows(biases) if biases else None
        self.packed: Packed | None = None

    def pack(self) -> None:
        """Let few rows be multiplied with the current weight in int8."""
        self.packed = pack(self.weight)

    def __call__(self, states: Tensor) -> Tensor:
        """The product with any number of rows."""
        return multiply(states, self.weight, self.bias, self.packed)

    @property
    def copies(self) -> int:
        """How often `one_row` wants the states."""
        return self.packed.copies if self.packed is not None else 1

    def one_row(self, states: Tensor) -> Tensor:
        """The product with one row that has the states `copies` times."""
        if self.packed is None:
            return linear(states, self.weight, self.bias)
        product = self.packed.repeated_product(states)
        return product if self.bias is None else product.add_(self.bias)


class Layer:
    """A decoder layer with joined products."""

    def __init__(self, parts: LayerParts) -> None:
        self.attention_norm, self.mlp_norm, self.kind = parts.attention_norm, parts.mlp_norm, parts.kind
        self.query_key_value, self.attention_output = Product(parts.query_key_value), Product([parts.attention_output])
        self.gate_up, self.down = Product(parts.gate_up), Product([parts.down])
        self.products = (self.query_key_value, self.attention_output, self.gate_up, self.down)
        self.head_norms = parts.head_norms
