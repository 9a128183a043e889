"""The one file that touches transformers' internals.

A step of the engine packs the tokens of all rows into one sequence, `(1, tokens)`. Everything in a model except
attention treats tokens one by one, so a packed forward pass needs only an attention function of our own, which knows
which token belongs to which row and where that row's earlier keys and values are. transformers lets us register one;
models are used as they are, none is re-implemented.

Tested with transformers 5.10, 5.17 and 5.22.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from quaere.errors import ModelMissing
from quaere.policies.native.storage import KVStorage, Span

ATTENTION = "quaere_packed"
_step: ContextVar[PackedStep] = ContextVar("quaere_packed_step")


class PackedStep:
    """One forward pass over the packed tokens of many rows.

    Spans of one token (rows that decode) come first, in slot order from 0, so that their attention is one batched call.
    """

    def __init__(self, storage: KVStorage, spans: list[Span], device: torch.device) -> None:
        self.storage = storage
        self.spans = spans
        self.num_decoding = _count_decoding(spans)
        self.lengths = torch.tensor([span.start + 1 for span in spans[: self.num_decoding]], device=device)
        self.longest = max((span.start + 1 for span in spans[: self.num_decoding]), default=0)
        self._rows = torch.arange(self.num_decoding, device=device)
        self._masks: dict[int | None, Tensor] = {}

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Packed `(1, heads, tokens, head_dim)` in, `(1, tokens, heads, head_dim)` out."""
        count = self.num_decoding
        keys, values = self.storage.write(layer, key, value, self.spans[count:])
        outputs = []
        if count:
            positions = self.lengths - 1
            keys[self._rows, :, positions] = key[0, :, :count].transpose(0, 1)
            values[self._rows, :, positions] = value[0, :, :count].transpose(0, 1)
            decoding = query[0, :, :count].transpose(0, 1).unsqueeze(2)
            seen = slice(0, self.longest)
            mask = self._decode_mask(window)
            outputs.append(_attention(decoding, keys[:count, :, seen], values[:count, :, seen], mask, scale, softcap))
        for span in self.spans[count:]:
            chunk = query[:, :, span.offset : span.offset + span.length]
            seen = slice(0, span.start + span.length)
            rows = slice(span.slot, span.slot + 1)
            mask = _chunk_mask(span, window, query.device)
            result = _attention(chunk, keys[rows, :, seen], values[rows, :, seen], mask, scale, softcap)
            outputs.append(result.transpose(1, 2)[0].unsqueeze(2))
        # Each output is (tokens, heads, 1, head_dim).
        return torch.cat(outputs).squeeze(2).unsqueeze(0)

    def _decode_mask(self, window: int | None) -> Tensor:
        """`(rows, 1, 1, longest)`: which positions each decoding row may look at. The same for all layers alike."""
        if window not in self._masks:
            columns = torch.arange(self.longest, device=self.lengths.device)
            mask = columns < self.lengths[:, None]
            if window is not None:
                mask &= columns >= self.lengths[:, None] - window
            self._masks[window] = mask[:, None, None, :]
        return self._masks[window]


def _count_decoding(spans: list[Span]) -> int:
    """How many spans at the front are one token of slot 0, 1, 2, ...: those attend in one batched call."""
    decoding = takewhile(lambda pair: pair[1].length == 1 and pair[1].slot == pair[0], enumerate(spans))
    return sum(1 for _ in decoding)


def _chunk_mask(span: Span, window: int | None, device: torch.device) -> Tensor | None:
    """Causal mask of a chunk of one row, `(length, start + length)`; None when it is a plain triangle."""
    total = span.start + span.length
    if span.start == 0 and (window is None or total <= window):
        return None
    rows = torch.arange(span.start, total, device=device)[:, None]
    columns = torch.arange(total, device=device)
    mask = columns <= rows
    if window is not None:
        mask &= columns > rows - window
    return mask


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, softcap: float | None
) -> Tensor:
    """Grouped-query attention without expanding keys and values when one token per row asks.

    `mask=None` means a plain causal triangle (query and key of equal length).
    """
    rows, heads, tokens, head_dim = query.shape
    groups = heads // key.shape[1]
    if softcap is not None:
        return _softcapped(query, key, value, mask, scale, softcap)
    if tokens == 1:
        # The heads that share a key head become several queries of that head.
        folded = query.reshape(rows, key.shape[1], groups, head_dim)
        result = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
        return result.reshape(rows, heads, 1, value.shape[3])
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=groups > 1
    )


def _softcapped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, softcap: float) -> Tensor:
    """Attention whose scores are squashed by tanh, as Gemma 2 has it; no fused kernel offers it."""
    groups = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scale
    scores = torch.tanh(scores / softcap) * softcap
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1, dtype=torch.float32).to(query.dtype)
    return weights @ value.repeat_interleave(groups, 1)


def _packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """What transformers calls in place of its own attention."""
    if options.get("s_aux") is not None:
        raise ModelMissing("models with attention sinks are not supported by the native engine")
    scale = options.get("scaling")
    output = _step.get().attend(
        module.layer_idx,
        query,
        key,
        value,
        scale if scale is not None else query.shape[-1] ** -0.5,
        options.get("sliding_window"),
        options.get("softcap"),
    )
    return output, None


def load_model(path: str, device: str, dtype: str, *, packed: bool = True) -> Any:
    """A causal LM of transformers that attends through `PackedStep`, ready for inference; or a plain one to train."""
    # OpenMP threads that spin while they wait slow down tenfold when something else needs the core.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION, _packed_attention)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            attn_implementation=ATTENTION if packed else "sdpa",
            low_cpu_mem_usage=True,
        )
    except (OSError, ValueError) as error:
        raise ModelMissing(f"cannot load a causal language model from {path}: {_first_line(error)}") from error
    return model.to(device).eval()


def use_packed_attention(model: Any) -> Any:
    """Switch a model that is already in memory to our attention."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION, _packed_attention)
    model.set_attn_implementation(ATTENTION)
    return model.eval()


def max_positions(model: Any) -> int:
    """How many tokens the model can attend to."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 20))


def forward(model: Any, step: PackedStep, token_ids: Tensor, positions: Tensor, wanted: Tensor) -> Tensor:
    """Run the packed tokens through the model; float32 logits `(wanted, vocabulary)` of the wanted packed tokens."""
    token = _step.set(step)
    try:
        with torch.no_grad():
            output = model(
                input_ids=token_ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=wanted
            )
    finally:
        _step.reset(token)
    logits: Tensor = output.logits[0].float()
    return logits


def hidden_states(model: Any, token_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """The last hidden states `(rows, tokens, width)` of a padded batch, with gradients; no logits are made."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    states: Tensor = decoder(input_ids=token_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
    return states


def project(model: Any, states: Tensor) -> Tensor:
    """Float32 logits of hidden states, as the model's own forward pass would give them."""
    config = model.config.get_text_config()
    for name in ("logit_scale", "logits_scaling"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise ModelMissing(f"models with {name} cannot be trained yet")
    logits: Tensor = model.get_output_embeddings()(states).float()
    softcap = getattr(config, "final_logit_softcapping", None)
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
