"""Models to measure with: the shapes of real ones, with random weights, written once to the machine's temporary folder.

prepare_model({"shape": "135m", "path": "DIR", "device": "cpu", "dtype": "float32"}).num_parameters == 134515008
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

# Llama for the first two, Qwen2 (with biases on query, key and value) for the others.
SHAPES: dict[str, tuple[str, dict[str, int]]] = {
    "tiny": ("Llama", {"layers": 2, "heads": 4, "kv_heads": 2, "hidden": 64, "ffn": 128, "vocab": 512}),
    "135m": ("Llama", {"layers": 30, "heads": 9, "kv_heads": 3, "hidden": 576, "ffn": 1536, "vocab": 49152}),
    "1.5b": ("Qwen2", {"layers": 28, "heads": 12, "kv_heads": 2, "hidden": 1536, "ffn": 8960, "vocab": 151936}),
    "3b": ("Qwen2", {"layers": 36, "heads": 16, "kv_heads": 2, "hidden": 2048, "ffn": 11008, "vocab": 151936}),
}


class Sizes(NamedTuple):
    """What must be moved to sample: all weights once a step, and K and V of every token a row looks at."""

    num_parameters: int
    weight_bytes: int
    kv_bytes: int  # of one token
    vocab: int


def prepare_model(spec: dict[str, Any]) -> Sizes:
    """How large the model at `spec["path"]` is; with `spec["shape"]`, it is made first. Runs in a worker."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if spec["shape"] and not Path(spec["path"]).exists():
        torch.manual_seed(0)
        with torch.device(spec["device"]):
            model = AutoModelForCausalLM.from_config(make_config(spec["shape"]), dtype=getattr(torch, spec["dtype"]))
        draft = Path(spec["path"] + ".draft")  # so that what is there is whole
        shutil.rmtree(draft, ignore_errors=True)
        model.save_pretrained(draft)
        draft.rename(spec["path"])
    config = AutoConfig.from_pretrained(spec["path"])
    with torch.device("meta"):
        num_parameters = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    text = config.get_text_config()
    size = getattr(torch, spec["dtype"]).itemsize
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    kv_bytes = 2 * text.num_hidden_layers * text.num_key_value_heads * head_dim * size
    return Sizes(num_parameters, num_parameters * size, kv_bytes, text.vocab_size)


def model_folder(shape: str, dtype: str) -> Path:
    """Where the model of a shape lies: always the same place, as vLLM keeps what it compiled by the model's path."""
    folder = Path(tempfile.gettempdir()) / "quaere-benchmarks"
    folder.mkdir(exist_ok=True)
    return folder / f"{shape}-{dtype}"


def make_config(shape: str) -> Any:
    import transformers

    family, sizes = SHAPES[shape]
    return getattr(transformers, f"{family}Config")(
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"],
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["ffn"],
        vocab_size=sizes["vocab"],
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, and where it runs."""
    parser.add_argument("--shape", choices=tuple(SHAPES), default="135m", help="a model of this shape, random weights")
    parser.add_argument("--model", metavar="DIR", help="a model of your own instead")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of each engine (default: torch's choice)")
