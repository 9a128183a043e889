"""Which models the native engine can run: those in which only attention lets a token see other tokens.

Tokens of many rows are packed into one sequence, and only attention is told which token belongs to which row
(`attention`, `varlen`). A layer that mixes tokens otherwise (a convolution, a recurrence) would mix rows unnoticed,
so a model with such layers is refused.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from quaere.errors import ModelMissing

_ATTENTION = {"full_attention", "sliding_attention"}


def refuse_unsupported(model: Any) -> None:
    """Raise `ModelMissing` for a model that would compute something else when its rows are packed.

    The model may be without weights, on torch's meta device.
    """
    found = _find_other_layer(model)
    if found:
        kind = model.config.get_text_config().model_type
        raise ModelMissing(
            f"models of the kind {kind} have {found}; the engine runs only models whose tokens meet in full or sliding "
            "attention",
            hint="choose another model (docs/models.md has a table), or serve it elsewhere: openai:MODEL@BASE_URL",
        )


def _find_other_layer(model: Any) -> str:
    """What the engine cannot run in this model, in a few words; "" if it can run all of it."""
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    if others := sorted(kinds - _ATTENTION):
        return f"layers of {' and '.join(others)}"
    if any(isinstance(module, nn.Conv1d) for module in model.modules()):
        return "layers that convolve neighbouring tokens"
    if not getattr(model, "_supports_attention_backend", False):
        return "attention that cannot be replaced"
    return ""
