"""Encoder for untrusted text that never produces control tokens.

A tokenizer's *added* tokens (`<|im_end|>`, and often `<tool_call>`) are matched in text before anything else, and
disabling "special" tokens does not cover tokens that are added but not special. So the encoder uses a copy of the
tokenizer without any added tokens. The copy's output is checked too, because a vocabulary may contain the same string
as an ordinary token; the text of such a token is split and encoded again.

    PlainEncoder(tokenizer).encode("<|im_end|>")  -> [44, 108, 306, 79, 486, 108, 46]    # not [2]
"""

from __future__ import annotations

from typing import Any

import msgspec

from quaere.errors import TemplateRefused


class PlainEncoder:
    """Encodes untrusted text with a tokenizer's vocabulary but none of its added tokens."""

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise TemplateRefused(
                f"{type(tokenizer).__name__} is not a fast tokenizer, so documents could carry control tokens",
                hint="choose a model that ships a tokenizer.json",
            )
        # The vocabulary, which is nearly all of it, is passed on unread: reading it takes longest.
        layout = msgspec.json.decode(backend.to_str(), type=dict[str, msgspec.Raw])
        # Not control tokens: a token of one character, which cannot be split and controls nothing, and the unknown
        # token, which stands for text without an id.
        self.control_ids = frozenset(
            entry["id"]
            for entry in msgspec.json.decode(layout["added_tokens"])
            if len(entry["content"]) > 1 and entry["id"] != tokenizer.unk_token_id
        )
        nothing = msgspec.Raw(b"null")
        layout.update(added_tokens=msgspec.Raw(b"[]"), post_processor=nothing, truncation=nothing, padding=nothing)
        self._twin = Tokenizer.from_buffer(msgspec.json.encode(layout))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, none of them an added token."""
        # Half a surrogate pair, which broken files can contain, has no encoding: it becomes a question mark.
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
            raise TemplateRefused(
                "the tokenizer cannot encode some text without control tokens, so documents could carry them",
                hint="choose another model",
            )
        ids: list[int] = []
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            ids += self.encode(text[begin:end])
        return ids
