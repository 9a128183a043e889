"""Folders of models and adapters, which are untrusted: adapters and their bases, checks of sizes, tokenizers.

    is_adapter(Path("warm"))              # True if adapter_config.json and adapter_model.safetensors exist
    split_base("warm@models/qwen")        == ("warm", "models/qwen")      # the base given by hand, if it has moved
    base_names(Path("warm"))              == ["/home/ada/models/qwen", "qwen"]
    check_config("./my-model")            # raises BadInput if a size is out of bounds
    check_weights(config, "./my-model")   # raises BadInput if the model is larger than its files can be
    hash_weights(["./my-model"])          # of the weight files alone
    load_tokenizer("./my-model")          # no code of the folder is run

A config is a few lines; `"num_hidden_layers": 10000000` takes hours and all memory, so sizes are checked before a model
of these sizes is built. Layers are built one by one, so their number has a separate bound; the bound of all weights
depends on the size of the weight files. Adapters have peft's layout; `catalogue.resolve_model` combines a base with its
adapters, and `native/weights.py` reads their weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from quaere.errors import BadInput, ModelMissing
from quaere.policies.untrained_tokens import spell_untrained

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


T = TypeVar("T")

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Files that Quaere writes into the folders of its adapters, and their field with the base model as the user named it.
_NOTES = {"quaere.json": "base", "warmup.json": "base_model"}


class _Config(Struct):
    base_model_name_or_path: str | None = None
    peft_type: str = "LORA"


def is_adapter(folder: Path) -> bool:
    """True if the folder contains an adapter in peft's layout."""
    return (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()


def split_base(name: str) -> tuple[str, str]:
    """The two parts of `ADAPTER@BASE`; for any other name, the name and ""."""
    if not Path(name).expanduser().is_dir():
        for place in (place for place, letter in enumerate(name) if letter == "@"):
            if is_adapter(Path(name[:place]).expanduser()):
                return name[:place], name[place + 1 :]
    return name, ""


def base_names(folder: Path) -> list[str]:
    """All names that the folder gives for its base model, peft's first; one may be a path on another machine."""
    config = _read(folder / CONFIG, _Config)
    if config.peft_type != "LORA":
        raise ModelMissing(f"{folder} is an adapter of type {config.peft_type}; only type LORA is supported")
    names = [config.base_model_name_or_path]
    for file, field in _NOTES.items():
        if (folder / file).is_file():
            found = _read(folder / file, dict[str, object]).get(field)
            names.append(found if isinstance(found, str) else None)
    return list(dict.fromkeys(name for name in names if name))


def _read(path: Path, type: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelMissing(f"the adapter's file {path} cannot be read: {' '.join(str(error).split())}") from error


# ------------------------------------------------------------------------------------------------- sizes in config.json

MAX_LAYERS = 1_000  # the deepest of today's models have 126
MAX_EXPERTS = 10_000
MAX_WIDTH = 1 << 24  # largest size of a vocabulary, of states, of a head ...
PARAMETERS_PER_BYTE = 2  # quantised to four bits
SPARE_NUMBERS = 1 << 28  # parameters and buffers that no file has: heads that are not stored, masks, frequencies

_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers", "encoder_layers")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "n_shared_experts", "moe_num_experts")
_WIDTHS = (
    *("hidden_size", "n_embd", "d_model", "n_inner", "d_ff", "ffn_dim", "intermediate_size", "moe_intermediate_size"),
    *("num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads", "head_dim", "vocab_size"),
    *("n_positions", "n_ctx"),
)
_BOUNDS = {
    **dict.fromkeys(_LAYERS, (1, MAX_LAYERS)),
    **dict.fromkeys(_EXPERTS, (0, MAX_EXPERTS)),
    **dict.fromkeys(_WIDTHS, (0, MAX_WIDTH)),
}


def check_config(folder: str | Path) -> None:
    """Raise `BadInput` if a size in the folder's config.json is out of bounds; an unreadable file is ignored."""
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # transformers reports it
    for key, value in _numbers(config):
        low, high = _BOUNDS.get(key, (value, value))
        if not low <= value <= high:
            raise BadInput(f"{path} has {key}: {_shorten(value)}, which is not between {low} and {high:,}")


def check_weights(config: PretrainedConfig, folder: str | Path) -> PreTrainedModel | None:
    """Raise `BadInput` if a model of this config has more parameters than the folder's weights can hold.

    Returns the model without weights, on torch's meta device; None if the folder has none to compare with.
    """
    import torch
    from transformers import AutoModelForCausalLM

    # transformers maps the family's own name of the field to this one.
    num_layers = getattr(config.get_text_config(), "num_hidden_layers", 1)
    if not isinstance(num_layers, int) or not 1 <= num_layers <= MAX_LAYERS:
        raise BadInput(f"the config of {folder} has no number of layers between 1 and {MAX_LAYERS:,}")
    num_bytes = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    if not num_bytes:
        return None  # transformers reports that there are no weights
    with torch.device("meta"):  # shapes only
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    needed = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if needed > num_bytes * PARAMETERS_PER_BYTE + SPARE_NUMBERS:
        raise BadInput(
            f"the config of {folder} describes a model of {needed:,} parameters, "
            f"and its weights have {num_bytes:,} bytes"
        )
    return model


def hash_weights(folders: Iterable[str | Path]) -> str:
    """A hash of all weights in these folders, wherever the folders are; "" if they have none.

    hash_weights(resolve_model("smollm2-135m").folders) -> "5f2c9a51d0e6a0f9"
    """
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.safetensors"))]
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:16] if files else ""


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """All whole numbers in a config and the configs within it, with their keys."""
    waiting = [config]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
            yield from ((key, value) for key, value in part.items() if type(value) is int)


def _shorten(value: int) -> str:
    return f"{value:,}" if abs(value) < 10**18 else f"a number of {value.bit_length()} bits"


# ----------------------------------------------------------------------------------------------------------- tokenizers


def load_tokenizer(path: str) -> Any:
    """The tokenizer in a model folder; raises `ModelMissing` if it cannot be loaded. No code of the folder is run.

    Tags that the model in the folder never learned are spelled out.
    """
    from transformers import AutoTokenizer

    try:
        # False must be explicit: without it transformers asks at a terminal whether to run the folder's code.
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # invalid files raise many exception types
        raise ModelMissing(f"cannot load a tokenizer from {path}: {first_line(error)}") from error
    return spell_untrained(tokenizer, Path(path))


def first_line(error: BaseException) -> str:
    """First line of an exception's message, cut to 300 characters; the type's name if there is no message."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
