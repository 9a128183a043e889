"""Answers in tags: what is empty or too long is none, and lengths count without the space around."""

from quaere.chat.markup import find_blocks
from quaere.chat.protocol import MAX_ANSWER_CHARS, read_answer
from quaere.records import Answer, Malformed


def block(content):
    (found,) = find_blocks(f"<answer>{content}</answer>", ("answer",))
    return found


def test_the_longest_answer_and_the_longest_evidence_are_read():
    longest = "a" * MAX_ANSWER_CHARS
    assert read_answer(block(f" {longest}\n"), block(f"\n{longest} ")) == Answer(longest, span=longest)


def test_what_is_empty_or_longer_is_refused():
    long = "a" * (MAX_ANSWER_CHARS + 1)
    assert read_answer(block(" \n"), None) == Malformed("the answer is empty")
    assert read_answer(block(long), None) == Malformed("the answer is too long")
    assert read_answer(block("Venn"), block(long)) == Malformed("the evidence is too long")
    assert read_answer(block("Venn"), None) == Answer("Venn", span="")
