"""Reader of questions: of files with one JSON object per line, of which only `question` is required, and of the hub.

{"id": "q1", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "facts": 1, "set": "bridges"}

`facts` is the number of facts a question combines, `searches` the number of searches it needs (default: `facts`). If
`facts` is missing, `hops` is used instead. A file whose name ends in `.txt` may have one question per line, as it is
written and without answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from quaere.errors import BadInput
from quaere.records import Question
from quaere.records.foreign_json import decode_json
from quaere.rollout.hub_questions import is_hub, read_hub
from quaere.rollout.question_rows import QuestionRow
from quaere.search.json_lines import read_lines

_LINE = 'each line needs {"question": "...", "answers": ["..."]}'


def read_questions(source: str | Path, limit: int | None = None, facts: Collection[int] = ()) -> list[Question]:
    """Questions of a JSONL file (plain or compressed), of a text file or, with `hub:OWNER/NAME`, of the hub.

    `facts` selects the questions that combine one of these numbers of facts; `limit` applies after that selection. The
    error about a file names the number of the invalid line.
    """
    questions: list[Question] = []
    num_seen = 0
    for name, row in read_hub(source) if is_hub(source) else _read_file(Path(source)):
        num_seen += 1
        if not facts or row.num_facts in facts:
            questions.append(row.to_question(name))
        if len(questions) == limit:  # what follows is not read, valid or not
            break
    if not questions and num_seen:
        raise BadInput(f"{source} contains no question of {' or '.join(map(str, facts))} facts")
    if not questions:
        raise BadInput(f"{source} contains no question", hint=_LINE)
    return questions


def _read_file(path: Path) -> Iterator[tuple[str, QuestionRow]]:
    """The lines of a question file with their ids."""
    seen: set[str] = set()
    for number, line in read_lines(path):
        try:
            is_bare = path.suffix.lower() == ".txt" and not line.lstrip().startswith(b"{")
            row = _read_bare(path, number, line) if is_bare else decode_json(line, QuestionRow)
        except msgspec.DecodeError as error:
            raise BadInput(
                f"{path}, line {number}: {error}", hint=f"{_LINE}; bare questions need a .txt file"
            ) from error
        name = row.id or f"q{number}"
        if not row.question.strip():
            raise BadInput(f"{path}, line {number}: the question is empty")
        if name in seen:
            raise BadInput(f"{path}, line {number}: the id {name} occurs twice; ids must be unique")
        seen.add(name)
        yield name, row


def _read_bare(path: Path, number: int, line: bytes) -> QuestionRow:
    """A line of a text file as a question."""
    try:
        return QuestionRow(line.decode().strip())
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}, line {number}: not UTF-8", hint="save the file as UTF-8") from error
