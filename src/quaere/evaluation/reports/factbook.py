"""Known facts of a world's open questions, read from the file that `quaere questions --world DIR` writes.

read_facts(Path("questions.jsonl")).find("What is known of the Oss?").facts
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from quaere.errors import BadInput
from quaere.evaluation.reports.name_matching import split_words
from quaere.records.foreign_json import decode_json
from quaere.search.json_lines import read_lines
from quaere.worlds.open_questions import ReportLine

_HINT = "quaere questions --world DIR --out FILE writes them"


class FactBook:
    """Known facts of questions, looked up by the question's text.

    FactBook([ReportLine(question="What is known of the Oss?", ...)]).find("What is known of  the Oss?").facts
    """

    def __init__(self, lines: Iterable[ReportLine]) -> None:
        self._by_text = {_key(line.question): line for line in lines}

    def find(self, text: str) -> ReportLine | None:
        """The known facts of this question; None if it has none."""
        return self._by_text.get(_key(text))


def _key(text: str) -> str:
    return " ".join(text.split())


def read_facts(path: Path) -> FactBook:
    """The open questions of a world with their known facts, as `quaere questions --world` writes them."""
    lines: dict[str, ReportLine] = {}
    for number, text in read_lines(path):
        where = f"{path}, line {number}"
        try:
            line = decode_json(text, ReportLine)
        except msgspec.DecodeError as error:
            raise BadInput(f"{where}: not a question with known facts: {error}", hint=_HINT) from error
        if wrong := _fault(line):
            raise BadInput(f"{where}: {wrong}", hint=_HINT)
        if _key(line.question) in lines:
            raise BadInput(f"{where}: the question occurs twice; questions must be unique")
        lines[_key(line.question)] = line
    if not lines:
        raise BadInput(f"{path} contains no question", hint=_HINT)
    return FactBook(lines.values())


def _fault(line: ReportLine) -> str:
    if not line.question.strip():
        return "the question is empty"
    for fact in line.facts:
        if not any(map(split_words, fact.names)) or not any(map(split_words, fact.answers)):
            return f"the fact {fact.relation!r} names nothing"
        evidence = fact.evidence
        if not evidence.text.strip() or evidence.start < 0 or evidence.end - evidence.start != len(evidence.text):
            return f"the evidence of {fact.relation!r} is not a span of a document"
    return ""
