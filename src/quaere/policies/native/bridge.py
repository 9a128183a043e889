"""The one file that touches transformers' internals.

A forward pass of the engine packs the tokens of many rows into one sequence, `(1, tokens)`, and needs only an attention
function of its own (`attention`). transformers lets us register one; models are used as they are, none is
re-implemented.

Tested with transformers 5.10, 5.17 and 5.22.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from quaere.errors import ModelMissing
from quaere.policies.native.attention import Pass

ATTENTION = "quaere_packed"
_pass: ContextVar[Pass] = ContextVar("quaere_packed_pass")


def _packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """What transformers calls in place of its own attention."""
    if options.get("s_aux") is not None:
        raise ModelMissing("models with attention sinks are not supported by the native engine")
    scale = options.get("scaling")
    output = _pass.get().attend(
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
    """A causal LM of transformers that attends through a `Pass`, ready for inference; or a plain one to train."""
    # OpenMP threads that spin while they wait slow down tenfold when something else needs the core.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION, _packed_attention)
    if not packed:
        # cuDNN's attention with a mask gives NaN gradients for some lengths (torch 2.11 to 2.13, Hopper); the other
        # kernels do not.
        torch.backends.cuda.enable_cudnn_sdp(False)
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


def forward(model: Any, where: Pass, token_ids: Tensor, positions: Tensor, wanted: Tensor | None = None) -> Tensor:
    """Run the packed tokens through the model; float32 logits `(wanted, vocabulary)` of the wanted (or all) tokens."""
    token = _pass.set(where)
    try:
        output = model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=0 if wanted is None else wanted,
        )
    finally:
        _pass.reset(token)
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
