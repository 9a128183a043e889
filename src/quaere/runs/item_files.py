"""Curricula as files, Parquet or JSON Lines with one row per candidate, and the changes of a curriculum from a file.

    write_items(Path("questions.parquet"), items, "evolve-1")
    read_verdict_rows(Path("questions.parquet"))[0] == VerdictRow(id="i0g-0001", verdict="rejected", note="", ...)
    read_question_rows(Path("mine.jsonl"))[0] == QuestionRow(question="Who built the Halm bridge?", answer="Venn")
    plan_add([QuestionRow(question="Who built it?", answer="Venn")], items, "mine.jsonl")
    -> ([Added(...)], {"added": 1})
    plan_import([VerdictRow(id="i0g-0001", verdict="rejected")], items, "mine.jsonl", Path("evolve-1"))
    -> ([Verdict(...)], [], {"rejected": 1, "cleared": 0, "unchanged": 0})

docs/curriculum.md describes the columns. Files are written atomically. JSON Lines needs no further package; Parquet
needs the extra `parquet`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct, structs

from quaere.chat.protocol import Protocol, as_chat
from quaere.disk import new_file
from quaere.errors import BadInput, ExtraMissing
from quaere.records import Candidate, Evidence, SolveTask, searches_needed
from quaere.records.foreign_json import decode_json
from quaere.runs.review import Added, Item, Verdict, VerdictKind, find_item, judge, make_added

SCORE = "score/"  # prefix of the columns that hold a recipe's scores
# Column names and their Parquet types; a missing value is null.
COLUMNS = {
    "id": "string",
    "run": "string",
    "iteration": "int64",
    "step": "int64",
    "episode_id": "string",
    "document_id": "string",
    "hops": "int64",
    "facts": "int64",
    "searches": "int64",
    "question_type": "string",
    "cluster": "int64",
    "question": "string",
    "answer": "string",
    "answers": "strings",
    "span": "string",
    "evidence": "evidence",
    "evidence_state": "string",
    "p_with": "double",
    "p_without": "double",
    "value": "double",
    "num_samples": "int64",
    "num_right": "int64",
    "num_attempts": "int64",
    "kept": "bool",
    "reason": "string",
    "refusals": "strings",
    "learned": "bool",
    "verdict": "string",
    "note": "string",
    "verdict_time": "string",
    "added": "bool",
    "origin": "string",
    "added_time": "string",
}


# Columns that are fields of the verifier's result and of a person's verdict.
_SUPPORT = {"p_with": "chance_with", "p_without": "chance_without", "value": "value", "num_samples": "num_samples"}
_VERDICT = {"verdict": "kind", "note": "note", "verdict_time": "time"}


class VerdictRow(Struct, frozen=True):
    """A verdict as a row of a file; question and answer, where given, are compared with those of the run.

    VerdictRow(id="i0g-0001", verdict="rejected", note="which bridge?", question="Who built it?", answer="Venn")
    """

    id: str
    verdict: str | None
    note: str | None = None
    question: str | None = None
    answer: str | None = None


_Count = Annotated[float, Meta(ge=0, lt=1000, multiple_of=1)]  # float, because data frames write 2 as 2.0


class QuestionRow(Struct, frozen=True):
    """A question as a row of a file: written by a person, from a question file, or from an export.

    Only exports have `learned` (whether the solver trained on the question); in other files it is None.

        QuestionRow(question="Who built the Halm bridge?", answers=["Orsolya Venn", "Venn"], facts=1)
    """

    question: str | None = None
    answer: str | None = None
    answers: list[str] | None = None
    hops: _Count | None = None
    facts: _Count | None = None
    document_id: str | None = None
    span: str | None = None
    evidence: list[Evidence] | None = None
    id: str | None = None
    run: str | None = None
    learned: bool | None = None

    @property
    def num_facts(self) -> int:
        """Number of facts the question combines.

        0 if unknown. In exports, `hops` is Dr. Zero's count and is converted.
        """
        hops = int(self.hops or 0)
        converted = hops if self.learned is None else searches_needed(hops)
        return converted if self.facts is None else int(self.facts)


_Row = TypeVar("_Row", VerdictRow, QuestionRow)


# ------------------------------------------------------------------------------------------------------------ writing


def write_items(path: Path, items: Sequence[Item], run_id: str) -> None:
    """Write the items to `path`, as Parquet or JSON Lines by its suffix; an existing file is replaced."""
    write = choose_form(path, parquet=_write_parquet, jsonl=_write_jsonl)
    with new_file(path) as file:
        write(file, item_rows(items, run_id), _columns(items))


def item_rows(items: Sequence[Item], run_id: str) -> list[dict[str, Any]]:
    """The items as rows with the same columns for files and for the JSON output of the command line.

    item_rows(items, "evolve-1")[0] -> {"id": "i0g-000001", "run": "evolve-1", ..., "score/format": 1.0}
    """
    columns, rows = _columns(items), [_item_row(item, run_id) for item in items]
    return [{name: row.get(name) for name in columns} for row in rows]


def _columns(items: Sequence[Item]) -> dict[str, str]:
    return COLUMNS | dict.fromkeys(sorted({SCORE + name for item in items for name in item.candidate.scores}), "double")


def write_verl(path: Path, candidates: Sequence[Candidate], protocol: Protocol, run_id: str) -> None:
    """Write a Parquet dataset for verl: prompts as the solver's protocol opens an episode, answers as ground truth."""
    if path.suffix != ".parquet":
        raise BadInput(f"verl reads Parquet; {path} does not end in .parquet", hint="export FILE.parquet --verl")
    rows = [_verl_row(candidate, protocol, run_id, number) for number, candidate in enumerate(candidates)]
    with new_file(path) as file:
        _write_parquet(file, rows, _VERL_COLUMNS)


def choose_form(path: Path, **forms: Callable[..., Any]) -> Callable[..., Any]:
    """The function for the suffix of `path`: `choose_form(Path("a.jsonl"), jsonl=f, parquet=g) -> f`; else BadInput."""
    form = forms.get(path.suffix.removeprefix("."))
    if form is None:
        raise BadInput(f"{path} ends in neither .jsonl nor .parquet", hint="name it FILE.parquet or FILE.jsonl")
    return form


def _item_row(item: Item, run_id: str) -> dict[str, Any]:
    candidate, support, verdict = item.candidate, item.candidate.support, item.verdict
    return {
        **{name: getattr(candidate, name) for name in COLUMNS if hasattr(candidate, name)},
        **{name: getattr(support, field, None) for name, field in _SUPPORT.items()},
        **{name: getattr(verdict, field, "") for name, field in _VERDICT.items()},
        **{SCORE + name: score for name, score in candidate.scores.items()},
        "run": run_id,
        "searches": candidate.num_searches,
        "answers": list(candidate.answers),
        "evidence": [msgspec.structs.asdict(candidate.evidence)] if candidate.evidence else [],
        "evidence_state": item.evidence_state,
        "refusals": list(candidate.refusals),
        "learned": item.learned,
        "origin": item.origin,
        "added_time": item.added_time,
    }


_VERL_COLUMNS = {
    "data_source": "string",
    "prompt": "messages",
    "ability": "string",
    "reward_model": "reward_model",
    "extra_info": "extra_info",
}


def _verl_row(candidate: Candidate, protocol: Protocol, run_id: str, number: int) -> dict[str, Any]:
    question = candidate.to_question()
    return {
        "data_source": "quaere",
        "prompt": [as_chat(message) for message in protocol.opening(SolveTask(question))],
        "ability": "search",
        "reward_model": {"style": "rule", "ground_truth": {"target": list(question.answers)}},
        "extra_info": {
            "index": number,
            "split": "train",
            "id": candidate.id,
            "run": run_id,
            "question": candidate.question,
            "answer": candidate.answer,
            "span": candidate.gold_span,
            "document_id": candidate.document_id,
            "hops": candidate.hops,
            "facts": question.facts,
            "searches": question.searches,
            "protocol": protocol.name,
        },
    }


def _write_jsonl(path: Path, rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> None:
    """Write every column on every line; NaN and infinity become null, since JSON has no such numbers."""
    with path.open("wb") as stream:
        stream.writelines(msgspec.json.encode(row) + b"\n" for row in rows)


def _write_parquet(path: Path, rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> None:
    arrow, parquet = _load_pyarrow()
    types = _arrow_types(arrow)
    schema = arrow.schema([(name, types[kind]) for name, kind in columns.items()])
    parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), path)


def _arrow_types(arrow: Any) -> dict[str, Any]:
    text, whole, texts = arrow.string(), arrow.int64(), arrow.list_(arrow.string())
    counts = ("index", "hops", "facts", "searches")
    info = ("id", "run", "question", "answer", "span", "document_id", "protocol", "split")
    return {
        "string": text,
        "int64": whole,
        "double": arrow.float64(),
        "bool": arrow.bool_(),
        "strings": texts,
        "evidence": arrow.list_(arrow.struct([("doc_id", text), ("start", whole), ("end", whole), ("text", text)])),
        "messages": arrow.list_(arrow.struct([("role", text), ("content", text)])),
        "reward_model": arrow.struct([("style", text), ("ground_truth", arrow.struct([("target", texts)]))]),
        "extra_info": arrow.struct([*((name, whole) for name in counts), *((name, text) for name in info)]),
    }


# ------------------------------------------------------------------------------------------------------------ reading


def read_verdict_rows(path: Path) -> list[VerdictRow]:
    """Verdicts of a file: columns `id` and `verdict`, optionally `note`, `question` and `answer`."""
    rows = _read_rows(path, VerdictRow, 'each row needs an "id" and a "verdict": accepted, rejected, flagged or null')
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        if row.id in seen:
            raise BadInput(f"{path}, row {number}: the id {row.id} occurs twice; ids must be unique")
        seen.add(row.id)
    return rows


def read_question_rows(path: Path) -> list[QuestionRow]:
    """Questions of a file: columns `question` and `answer` or `answers`, and optional fields of `QuestionRow`."""
    return _read_rows(path, QuestionRow, QUESTION_SHAPE)


QUESTION_SHAPE = 'each row needs a "question" and an "answer" (or "answers")'


def _read_rows(path: Path, kind: type[_Row], shape: str) -> list[_Row]:
    rows = []
    try:
        for where, decode in choose_form(path, parquet=_read_parquet, jsonl=_read_jsonl)(path, kind):
            try:
                rows.append(decode())
            except msgspec.DecodeError as error:
                raise BadInput(f"{path}, {where}: {error}", hint=shape) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error
    return rows


def _read_jsonl(path: Path, kind: type[_Row]) -> Iterator[tuple[str, Callable[[], _Row]]]:
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # some editors begin a file with a byte-order mark
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            yield f"line {number}", partial(decode_json, line, kind)


def _read_parquet(path: Path, kind: type[_Row]) -> Iterator[tuple[str, Callable[[], _Row]]]:
    arrow, parquet = _load_pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            known = [name for name in kind.__struct_fields__ if name in file.schema_arrow.names]
            rows = file.read(columns=known).to_pylist()
    except (arrow.ArrowException, UnicodeDecodeError) as error:  # a program may write any bytes as text
        raise BadInput(f"{path} is not a valid Parquet file: {str(error).splitlines()[0]}") from error
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", partial(msgspec.convert, row, kind)


def _load_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ExtraMissing("Parquet needs pyarrow; JSON Lines (FILE.jsonl) does not", extra="parquet") from error
    return pyarrow, pyarrow.parquet


# ------------------------------------------------------------------------------------ the questions to add from a file

# Rows written by a person must all be valid, or the whole file is refused. Rows of an export (they have `learned`) come
# from a run, and runs repeat questions: of these, rows that the run has already are left out.


def plan_add(
    rows: Sequence[QuestionRow],
    items: Sequence[Item],
    file: str,
    *,
    iteration: int | None = None,
    take_all: bool = False,
) -> tuple[list[Added], dict[str, int]]:
    """The questions to add from these rows, and the number of rows by what became of them; `items` are the run's own.

    ([Added(...)], {"added": 1, "not learned from": 3, "there already": 1})
    """
    if not rows:
        raise BadInput(f"{file} has no question", hint=QUESTION_SHAPE)
    # Known are all added questions, and those the run wrote for the same iteration.
    known = {
        (item.candidate.question, item.candidate.answer): item.candidate.id
        for item in items
        if item.candidate.added or iteration is None or item.candidate.iteration == iteration
    }
    added: list[Added] = []
    counts = Counter(dict.fromkeys(("added", "not learned from", "there already"), 0))
    for number, row in enumerate(rows, start=1):
        is_exported = row.learned is not None
        question, answer = row.question or "", _answer(row)
        is_whole = bool(question.strip() and answer.strip())
        if row.learned is False and not (take_all and is_whole):
            counts["not learned from"] += 1
            continue
        if not is_whole:
            lacking = "answer" if question.strip() else "question"
            raise BadInput(f"{file}, row {number}: the {lacking} is missing", hint=QUESTION_SHAPE)
        where = known.get((question, answer))
        if where and not is_exported:
            raise BadInput(
                f"{file}, row {number}: the curriculum has this question already, as {where}", hint="remove the row"
            )
        if where:
            counts["there already"] += 1
            continue
        known[question, answer] = f"row {number}"
        added.append(_make(row, question, answer, iteration, _origin(row, file, number)))
        counts["added"] += 1
    return added, {what: number for what, number in counts.items() if number or what == "added"}


def settle_evidence(item: Added, checked: Item) -> Added:
    """The item with its evidence if that is verbatim in the run's documents; else with its text as a span only."""
    evidence = item.candidate.evidence
    if evidence is None or checked.evidence_state == "verbatim":
        return item
    candidate = structs.replace(item.candidate, evidence=None, span=evidence.text)
    return structs.replace(item, candidate=candidate)


def _answer(row: QuestionRow) -> str:
    """The row's answer or, in a question file, the first of its answers; the others are accepted too."""
    return row.answer if row.answer is not None else next(iter(row.answers or ()), "")


def _make(row: QuestionRow, question: str, answer: str, iteration: int | None, origin: str) -> Added:
    # Question files have one span per fact, and the last one states the answer; an export has one or none.
    evidence = row.evidence[-1] if row.evidence else None
    return make_added(
        question,
        answer,
        iteration=iteration,
        facts=row.num_facts,
        document_id=row.document_id or (evidence.doc_id if evidence else ""),
        span=row.span or "",
        evidence=evidence,
        aliases=tuple(dict.fromkeys(text for text in row.answers or () if text.strip() and text != answer)),
        origin=origin,
    )


def _origin(row: QuestionRow, file: str, number: int) -> str:
    if row.run and row.id:
        return f"run {row.run}, {row.id}"
    return f"{Path(file).name}, {row.id or f'row {number}'}"


# ----------------------------------------------------------------------------------------- verdicts of an edited export


def plan_import(
    rows: Sequence[VerdictRow], items: Sequence[Item], file: str, run: Path
) -> tuple[list[Verdict], list[str], dict[str, int]]:
    """The verdicts to give, the ids whose verdicts to remove, and counts; `BadInput` for a row of another run.

    ([Verdict(...)], ["i0g-0002"], {"rejected": 1, "cleared": 1, "unchanged": 14})
    """
    known = {item.candidate.id: item for item in items}
    verdicts, clear = [], []
    for row in rows:
        item = known.get(row.id) or find_item(items, row.id, run)  # raises with the nearest id
        # An edited question would be lost silently, and a verdict for another run's question would hit the wrong one.
        for name in ("question", "answer"):
            if getattr(row, name) not in (None, getattr(item.candidate, name)):
                said = f"{file}: the {name} of {row.id} is not the one in the run"
                raise BadInput(said, hint="only the columns verdict and note are imported; export the file again")
        kind, note = (row.verdict or "").strip(), row.note or ""
        now = (item.verdict.kind, item.verdict.note) if item.verdict else ("", "")
        if kind and (kind, note) != now:
            verdicts.append(judge(item.candidate, _read_kind(kind, row.id, file), note))
        elif not kind and item.verdict:
            clear.append(row.id)
    counted: Counter[str] = Counter(verdict.kind for verdict in verdicts)
    num_unchanged = len(rows) - len(verdicts) - len(clear)
    return verdicts, clear, {**counted, "cleared": len(clear), "unchanged": num_unchanged}


def _read_kind(kind: str, id: str, file: str) -> Any:
    kinds = get_args(VerdictKind)
    if kind not in kinds:
        raise BadInput(f"{file}: {kind!r}, the verdict of {id}, is not one", hint=f"{', '.join(kinds)} or nothing")
    return kind
