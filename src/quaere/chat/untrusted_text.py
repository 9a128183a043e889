"""Encoding text from outside so that no part of it becomes a control token.

A tokenizer's *added* tokens (`<|im_end|>`, and often `<tool_call>` too) are matched in text before anything else, and
switching off "special" tokens does not cover those that are added but not special. So a twin of the tokenizer is made
that knows none of them. What the twin gives back is checked, because a vocabulary may hold the same string as an
ordinary piece; such a piece is split.

    PlainEncoder(tokenizer).encode("<|im_end|>")  -> [44, 108, 306, 79, 486, 108, 46]    # not [2]
"""

from __future__ import annotations

import json
from typing import Any

from quaere.errors import TemplateRefused


class PlainEncoder:
    """Encodes untrusted text with one tokenizer's vocabulary and none of its added tokens."""

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise TemplateRefused(
                f"{type(tokenizer).__name__} is not a fast tokenizer, so documents could carry control tokens",
                hint="choose a model that ships a tokenizer.json",
            )
        layout = json.loads(backend.to_str())
        # A token of one character cannot be split and cannot control anything; the unknown token stands for text that
        # has no other id.
        self.control_ids = frozenset(
            entry["id"]
            for entry in layout["added_tokens"]
            if len(entry["content"]) > 1 and entry["id"] != tokenizer.unk_token_id
        )
        layout.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
        self._twin = Tokenizer.from_str(json.dumps(layout))

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, none of them an added token's."""
        # Half a surrogate pair, which broken files can hold, has no encoding; it becomes the replacement character.
        text = text.encode("utf-8", "replace").decode()
        encoding = self._twin.encode(text, add_special_tokens=False)
        if self.control_ids.isdisjoint(encoding.ids):
            return list(encoding.ids)
        cuts = [
            start + 1
            for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token in self.control_ids and end - start > 1
        ]
        if not cuts:
            raise TemplateRefused("the tokenizer cannot write some text without its control tokens")
        ids: list[int] = []
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            ids += self.encode(text[begin:end])
        return ids
