"""The turns of an episode as a conversation: thought, queries, passages with the cited sentence marked, answer.

view_turns(episode.turns, span="Orsolya Venn built it.")[0].results[0].passages[1].is_quoted == True

A turn's text has the tags of its dialect. The page shows what they mean, which is the action that was read from the
turn, and the thought: what is between `<think>` tags or outside of all tags. The key `t` shows the text itself.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from quaere.chat.markup import THOUGHT, find_blocks
from quaere.chat.spans import locate_span
from quaere.records import Evaluate, Evidence, Malformed, Passage, SearchResult, StopReason, Turn
from quaere.viewer.attempt_groups import describe_turn
from quaere.viewer.document_reader import TextPart, mark_part
from quaere.viewer.page_formats import copy_fields

# Tags around actions and notes, of all dialects.
_ACTIONS = tuple("tool_call search answer evidence question evaluate refine rubric assessment verdict".split())
_OPENING = re.compile("<(?:" + "|".join(_ACTIONS) + ")>")


class PassageView(Struct, frozen=True):
    """A passage that the model was shown, as a card; `anchor` is its place on the page.

    `parts` is its text with the cited sentence marked: the one that the episode quoted (`is_quoted`), or the one that
    contains the answer (`has_answer`) where none was quoted.
    """

    anchor: str
    id: str
    title: str
    heading: str
    place: str
    score: float
    parts: list[TextPart]
    is_quoted: bool
    has_answer: bool


class ResultView(Struct, frozen=True):
    """A query and what it found, best first."""

    query: str
    passages: list[PassageView]


class TurnView(Struct, frozen=True):
    """A turn: what the model wrote, the action that was read from it, and what the environment replied.

    `thought` is the text beside the action, and `note` what the dialect asks for about the passages before. `score` is
    the model's own score of its last search, from 0 to 10 (recipe EvalAct); None in other turns. `reply` is "" if it
    only repeats the results.
    """

    number: int
    text: str
    thought: str
    note: str
    kind: str
    line: str
    stop_reason: StopReason
    num_tokens: int
    sample_s: float
    search_s: float
    results: list[ResultView]
    reply: str
    fault: str
    score: float | None


def view_turns(turns: Sequence[Turn], span: str = "", support: Evidence | None = None) -> list[TurnView]:
    """Turns as a page shows them, with the quoted span marked in passages, and the support if one is given."""
    return [_view_turn(turn, span, support) for turn in turns]


def view_passage(
    passage: Passage, anchor: str, score: float, span: str, support: Evidence | None = None
) -> PassageView:
    """A passage as a card, with the sentence that an answer cites marked in it."""
    quoted = locate_span(span, passage.text)
    found = None if quoted else _locate(support, passage)
    return copy_fields(
        PassageView,
        passage,
        anchor=anchor,
        score=score,
        parts=mark_part(passage.text, *(quoted or found or (0, 0))),
        is_quoted=quoted is not None,
        has_answer=found is not None,
    )


def read_thought(text: str) -> str:
    """What a turn says beside its action: its thoughts, and the text outside of all tags.

    read_thought("I look. <think>Who built it?</think><search>Halm bridge</search>") == "I look.\\n\\nWho built it?"
    """
    pieces, start = [], 0
    for block in find_blocks(text, (THOUGHT, *_ACTIONS)):
        pieces += [text[start : block.start], block.content if block.name == THOUGHT else ""]
        start = block.end
    rest = text[start:]
    # An open thought holds no action; else the turn ended in the middle of one.
    pieces.append(rest.replace(f"<{THOUGHT}>", "", 1) if f"<{THOUGHT}>" in rest else _OPENING.split(rest, 1)[0])
    return "\n\n".join(piece.strip() for piece in pieces if piece.strip())


# ------------------------------------------------------------------------------------------------------------- details


def _view_turn(turn: Turn, span: str, support: Evidence | None) -> TurnView:
    said = describe_turn(turn)
    thought = "" if isinstance(turn.action, Malformed) else read_thought(turn.text)
    return copy_fields(
        TurnView,
        turn,
        number=turn.index + 1,
        thought="" if thought == getattr(turn.action, "text", "") else thought,
        note=getattr(turn.action, "note", ""),
        kind=said.kind,
        line=said.text,
        results=_view_results(turn.results, f"passage-{turn.index + 1}", span, support),
        reply="" if turn.results and not turn.note_tokens else turn.reply,
        fault=said.fault,
        score=turn.action.score if isinstance(turn.action, Evaluate) else None,
    )


def _view_results(
    results: Sequence[SearchResult], anchor: str, span: str, support: Evidence | None
) -> list[ResultView]:
    views = []
    for number, result in enumerate(results, start=1):
        cards = [
            view_passage(hit.passage, f"{anchor}-{number}-{rank}", hit.score, span, support)
            for rank, hit in enumerate(result.hits, start=1)
        ]
        views.append(ResultView(result.query, cards))
    return views


def _locate(support: Evidence | None, passage: Passage) -> tuple[int, int] | None:
    """The place of a sentence in a passage that contains it."""
    if support is None or support.doc_id != passage.doc_id or support.start < passage.start:
        return None
    start, end = support.start - passage.start, support.end - passage.start
    return (start, end) if passage.text[start:end] == support.text else None
