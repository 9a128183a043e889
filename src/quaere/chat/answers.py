"""Answers in tags, as several dialects read them.

read_answer(Block("answer", "Orsolya Venn", ...), None) -> Answer(text="Orsolya Venn")
"""

from __future__ import annotations

from quaere.chat.tags import Block
from quaere.records import Answer, Malformed

STOP = ("</tool_call>", "</answer>")  # of dialects with JSON calls
MAX_ANSWER_CHARS = 4000


def read_answer(block: Block, span: Block | None) -> Answer | Malformed:
    """The answer a block holds, with the quotation before it; `Malformed` where it is empty or one is far too long."""
    answer = block.content.strip()
    if not answer:
        return Malformed(reason="the answer is empty")
    if len(answer) > MAX_ANSWER_CHARS:
        return Malformed(reason="the answer is too long")
    quoted = span.content.strip() if span else ""
    if len(quoted) > MAX_ANSWER_CHARS:
        return Malformed(reason="the evidence is too long")
    return Answer(text=answer, span=quoted)
