"""Tags that a model has tokens for but never learned, such as <tool_call> in Qwen2.5-Coder, are spelled out.

The embeddings of tokens that training never saw are all alike. The model cannot tell such tokens apart, does not write
them, and with an adapter, which leaves embeddings as they are, cannot learn to. Spelled in ordinary tokens, a tag is
read and learned like any other text.

    tokenizer.tokenize("<tool_call>")                                   # ["<tool_call>"]
    tokenizer = spell_untrained(tokenizer, Path("qwen2.5-coder-1.5b"))
    tokenizer.tokenize("<tool_call>")                                   # ["<", "tool", "_call", ">"]
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embeddings.weight", "embed_in.weight")
# Relative distance of two embeddings that are the same but for rounding. In Qwen2.5-Coder-1.5B quantisation moves
# those of unseen tokens by 0.002, and the nearest of a seen one is 0.3 away.
_SAME = 0.02
_TAG = re.compile(r"</?[a-z_]+>")
_BLOCK = 512  # tags compared at once: some tokenizers have thousands


def spell_untrained(tokenizer: Any, folder: Path) -> Any:
    """The tokenizer of the model in this folder, without tokens for tags whose embedding is that of another token.

    Its `spelled_out` are these tags. Control tokens, such as the end of a turn, stay: a chat template needs them. So do
    tokens that are kept free, such as <unused7>: nobody writes them.
    """
    backend, added = getattr(tokenizer, "backend_tokenizer", None), tokenizer.added_tokens_decoder
    tags = [token_id for token_id, token in added.items() if not token.special and _TAG.fullmatch(token.content)]
    if backend is None or not tags:
        return tokenizer
    unseen = find_alike(_read_embeddings(folder, added), tags)
    if unseen:
        tokenizer._tokenizer = type(backend).from_str(_without(backend.to_str(), unseen))
        tokenizer.spelled_out = tuple(added[one].content for one in sorted(unseen))
    return tokenizer


def find_alike(rows: Mapping[int, Tensor], token_ids: Collection[int]) -> set[int]:
    """Those of the ids whose row is that of another id.

    find_alike({3: tensor([1.0, 0.0]), 4: tensor([0.0, 1.0]), 5: tensor([1.0, 0.001])}, [3, 4]) == {3}
    """
    import torch

    asked = [one for one in token_ids if one in rows]
    if not asked:
        return set()
    table, found = torch.stack(list(rows.values())), set[int]()
    for first in range(0, len(asked), _BLOCK):
        block = asked[first : first + _BLOCK]
        mine = torch.stack([rows[one] for one in block])
        num_alike = (torch.cdist(mine, table) <= _SAME * mine.norm(dim=1, keepdim=True)).sum(dim=1)
        found.update(one for one, num in zip(block, num_alike.tolist(), strict=True) if num > 1)  # itself is one
    return found


def _read_embeddings(folder: Path, token_ids: Collection[int]) -> dict[int, Tensor]:
    """The input embeddings of these tokens; none if the folder has no weights, or files that cannot be read."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(str(file), "pt") as weights:
                name = next((name for name in weights.keys() if name.endswith(_EMBEDDINGS)), None)  # noqa: SIM118
                if name:
                    table = weights.get_slice(name)
                    num_rows = table.get_shape()[0]
                    return {one: table[one : one + 1][0].float() for one in sorted(token_ids) if one < num_rows}
        except (OSError, SafetensorError):
            return {}  # loading the model reports what is wrong with it
    return {}


def _without(tokenizer: str, token_ids: Collection[int]) -> str:
    """A tokenizer's JSON without these added tokens.

    A token that the vocabulary contains too is removed from the added tokens. Any other is renamed to something that no
    text contains: removing it would shift the ids of the tokens after it.
    """
    read = json.loads(tokenizer)
    vocabulary = read["model"]["vocab"]
    kept = []
    for token in read["added_tokens"]:
        if token["id"] not in token_ids:
            kept.append(token)
        elif not isinstance(vocabulary, dict) or token["content"] not in vocabulary:
            kept.append(token | {"content": f"<|untrained {token['id']}|>"})
    read["added_tokens"] = kept
    return json.dumps(read)
