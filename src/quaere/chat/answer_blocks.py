"""Reader of `<answer>` blocks, shared by several dialects.

read_answer(Block("answer", "Orsolya Venn", ...), None) -> Answer(text="Orsolya Venn")
"""

from __future__ import annotations

from quaere.chat.tags import Block
from quaere.records import Answer, Malformed

CALL_STOP = "</tool_call>"
STOP = (CALL_STOP, "</answer>")  # stop strings of dialects with JSON tool calls
MAX_ANSWER_CHARS = 4000


def read_answer(block: Block, span: Block | None) -> Answer | Malformed:
    """The answer in a block, with the evidence in `span`; `Malformed` if the answer is empty or either is too long."""
    answer = block.content.strip()
    if not answer:
        return Malformed(reason="the answer is empty")
    if len(answer) > MAX_ANSWER_CHARS:
        return Malformed(reason="the answer is too long")
    quoted = span.content.strip() if span else ""
    if len(quoted) > MAX_ANSWER_CHARS:
        return Malformed(reason="the evidence is too long")
    return Answer(text=answer, span=quoted)
