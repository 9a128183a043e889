"""Reader of questions from JSON Lines, text and Parquet files, and from data sets of the Hugging Face hub.

Of the fields of a line, only `question` is required:

    {"id": "q1", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "facts": 1, "set": "bridges"}

A data set of the hub is named by

    hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]

Accepted answers may also be called `golden_answers`, as in FlashRAG's files, or `answer`, a text or a list; files of
BrowseComp-Plus are read once its own script has decrypted them. `facts` is the number of facts a question combines,
`searches` the number of searches it needs (default: `facts`). If `facts` is missing, `hops` is used instead.
A file whose name ends in `.txt` may have one plain question per line, without answers. Parquet files, such as those of
Search-R1, and data sets of the hub are read by the names of their columns. No code of a data set is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from quaere.errors import BadInput, import_extra
from quaere.policies.hub import explain_hub_error
from quaere.records import Evidence, Question
from quaere.records.foreign_json import decode_json
from quaere.search.json_lines import read_lines

_LINE = 'each line needs {"question": "...", "answers": ["..."]}'
_SCORED = '"answers": ["..."], or "answers": [] if the documents do not answer; `quaere ask --questions` needs none'


def read_questions(
    source: str | Path, limit: int | None = None, facts: Collection[int] = (), *, to_score: bool = False
) -> list[Question]:
    """Questions of a JSONL file (plain or compressed), a text or Parquet file or, with `hub:OWNER/NAME`, of the hub.

    `facts` selects the questions that combine one of these numbers of facts; `limit` applies after that selection. The
    error about a file names the number of the invalid line. With `to_score`, a question must have a field of answers:
    an empty one means that the documents do not answer.
    """
    questions: list[Question] = []
    num_seen = 0
    for name, row in _read_rows(source):
        num_seen += 1
        if not facts or row.num_facts in facts:
            if to_score and not row.names_answers:
                raise BadInput(f"{source}: the question {name} has no field `answers` to score with", hint=_SCORED)
            questions.append(row.to_question(name))
        if len(questions) == limit:  # what follows is not read, valid or not
            break
    if not questions and num_seen:
        raise BadInput(f"{source} contains no question of {' or '.join(map(str, facts))} facts")
    if not questions:
        hint = "each line of a text file is a question" if Path(source).suffix.lower() == ".txt" else _LINE
        raise BadInput(f"{source} contains no question", hint=hint)
    return questions


def _read_rows(source: str | Path) -> Iterator[tuple[str, QuestionRow]]:
    if is_hub(source):
        return read_hub(source)
    return _read_parquet(Path(source)) if is_table(source) else _read_file(Path(source))


def _read_file(path: Path) -> Iterator[tuple[str, QuestionRow]]:
    seen: set[str] = set()
    for number, line in read_lines(path):
        try:
            is_bare = path.suffix.lower() == ".txt" and not line.lstrip().startswith(b"{")
            row = QuestionRow(line.decode().strip()) if is_bare else _decode_row(line)
        except UnicodeDecodeError as error:
            raise BadInput(f"{path}, line {number}: not UTF-8", hint="save the file as UTF-8") from error
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


# ----------------------------------------------------------------------------------------------------------------- rows


class QuestionRow(msgspec.Struct):
    """The fields of a question that are read; others are ignored.

    QuestionRow(question="Who built the Halm bridge?", id="q1", answers=("Orsolya Venn",), facts=1, set="bridges")
    """

    question: str
    id: str = ""
    answers: tuple[str, ...] | UnsetType = UNSET
    golden_answers: tuple[str, ...] | UnsetType = UNSET  # FlashRAG's name for them
    hops: int = 0
    evidence: tuple[Evidence, ...] = ()
    # Loose types on purpose: third-party files have numbers or null as names of sets and documents, and in files of
    # open-ended questions `facts` is a list of the facts themselves.
    facts: Any = None
    searches: Any = None
    set: str | int | None = None
    gold_ids: tuple[str | int, ...] | None = None
    hidden: tuple[str, ...] = ()
    answer: Any = UNSET  # read only of a row without the first two, which may be empty on purpose
    answer_aliases: Any = None

    def __post_init__(self) -> None:
        for name in ("facts", "searches"):
            value = getattr(self, name)
            if isinstance(value, str) and len(value.split()) == 1:  # a number as text would be ignored silently
                raise ValueError(f"`{name}` must be a number, not {value!r}")

    def to_question(self, name: str) -> Question:
        """The row as a question with the id `name`."""
        return Question(
            name,
            self.question,
            self.accepted,
            self.hops or self.num_facts,
            self.evidence,
            "" if self.set is None else str(self.set),
            tuple(map(str, self.gold_ids or ())),
            facts=self.num_facts,
            searches=_count(self.searches, self.num_facts),
            hidden=self.hidden,
        )

    @property
    def accepted(self) -> tuple[str, ...]:
        """The accepted answers; none if the documents do not answer the question, or if the answer is not known."""
        named = [names for names in (self.answers, self.golden_answers) if names is not UNSET]
        return (
            next(filter(None, named), ()) if named else tuple(dict.fromkeys(_texts([self.answer, self.answer_aliases])))
        )

    @property
    def names_answers(self) -> bool:
        """True if the row has a field of answers, which may be empty on purpose."""
        return any(field is not UNSET for field in (self.answers, self.golden_answers, self.answer))

    @property
    def num_facts(self) -> int:
        """The number of facts the question combines; 0 if unknown."""
        return _count(self.facts, self.hops)


def _count(value: object, otherwise: int) -> int:
    """The value if it is a whole number from 0 on, else `otherwise`; a table with missing values has 2.0 for 2."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
        return otherwise
    return int(value)


class _Document(msgspec.Struct):
    docid: str | int


class _Query(msgspec.Struct):
    """A line of BrowseComp-Plus: {"query_id": "7", "query": "...", "answer": "...", "gold_docs": [{"docid": "12"}]}."""

    query_id: str | int
    query: str
    answer: str
    gold_docs: tuple[_Document, ...] = ()

    def to_row(self) -> QuestionRow:
        gold = tuple(str(document.docid) for document in self.gold_docs)
        return QuestionRow(self.query, str(self.query_id), (self.answer,), set="browsecomp-plus", gold_ids=gold)


def _decode_row(line: bytes) -> QuestionRow:
    """The question of a line in Quaere's form or BrowseComp-Plus's; an error says what Quaere's form lacks."""
    try:
        return decode_json(line, QuestionRow)
    except msgspec.ValidationError:
        with suppress(msgspec.DecodeError):
            return decode_json(line, _Query).to_row()
        raise


# ------------------------------------------------------------------------------------------------- columns of data sets


# Per field, the names that data sets give it, in any case; the first that a data set has is read.
QUESTION = ("question", "query", "problem", "input")
ANSWERS = ("golden_answers", "answers", "answer", "possible_answers", "annotations", "output", "target")
ALIASES = ("answer_aliases",)  # read as further answers (MuSiQue)
IDS = ("id", "_id", "question_id", "qid", "example_id")
SETS = ("set", "data_source")
OWN = ("hops", "facts", "searches", "evidence", "gold_ids")  # fields that only question files written by Quaere have

# Keys of an object that hold accepted answers: SQuAD's {"text": [...]}, TriviaQA's {"value": ..., "aliases": [...]},
# the {"short_answers": [...]} of Natural Questions, KILT's {"answer": ...}.
_KEYS = ("text", "value", "aliases", "answer", "answers", "short_answers")
_MAX_DEPTH = 6
_MAX_LIST = 65_536  # characters of a list that is written as a string


class Columns(Struct, frozen=True):
    """The column of a data set for each field of a question, "" if none; `own` are fields that only Quaere writes.

    Columns(question="question", answers=("golden_answers",), id="id", set="data_source", own=("hops",))
    """

    question: str
    answers: tuple[str, ...]
    id: str = ""
    set: str = ""
    own: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return [name for name in (self.question, *self.answers, self.id, self.set, *self.own) if name]

    def read(self, row: dict[str, Any]) -> QuestionRow | None:
        """The question of a row; None if it has no text, or the data set has answers and this row's are missing.

        An empty list of answers is not missing: it says that the question has none, as in SQuAD 2.0. An empty list of
        aliases does not say that.
        """
        text = next(_texts(row[self.question]), "")
        answers = tuple(dict.fromkeys(answer for name in self.answers for answer in _texts(row[name])))
        is_missing = self.answers and not answers and not _says_none(row[self.answers[0]])
        if not text or is_missing:
            return None
        name, group = (value if isinstance(value, str | int) else None for value in map(row.get, (self.id, self.set)))
        found = QuestionRow(text, "" if name is None else str(name), answers if self.answers else UNSET, set=group)
        for field in self.own:
            with suppress(msgspec.ValidationError):  # values of another type than in a question file are ignored
                read = msgspec.convert({"question": text, field: row[field]}, QuestionRow)
                setattr(found, field, getattr(read, field))
        return found


def find_columns(names: Sequence[str]) -> Columns | None:
    """The columns to read of a data set that has columns of these `names`; None if none of them holds questions."""
    by_name = {name.lower(): name for name in reversed(names)}

    def first(of: Sequence[str]) -> str:
        return next((by_name[name] for name in of if name in by_name), "")

    question = first(QUESTION)
    answers = tuple(name for name in (first(ANSWERS), first(ALIASES)) if name)
    own = tuple(name for name in OWN if name in names)
    return Columns(question, answers, first(IDS), first(SETS), own) if question else None


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """The texts in a value of any nesting, without empty ones.

    list(_texts({"text": ["Venn", "O. Venn"], "answer_start": [3, 3]})) == ["Venn", "O. Venn"]
    """
    if depth > _MAX_DEPTH:
        return
    match value:
        case bool():
            yield "yes" if value else "no"
        case int() | float():
            yield f"{value:.15g}"
        case str():
            yield from _split_list(value)
        case list():
            for part in value:
                yield from _texts(part, depth + 1)
        case dict():
            for key in _KEYS:
                yield from _texts(value.get(key), depth + 1)


def _says_none(value: object) -> bool:
    """True for an empty list, and an object of such: {"text": [], "answer_start": []}."""
    return value == [] or (isinstance(value, dict) and bool(value) and all(map(_says_none, value.values())))


def _split_list(text: str) -> Iterator[str]:
    """The entries of a text that is a JSON list of strings, as PopQA's answers are; any other text as it is."""
    text = text.strip()
    if text.startswith('["') and text.endswith("]") and len(text) <= _MAX_LIST:
        with suppress(msgspec.DecodeError):
            yield from filter(None, map(str.strip, msgspec.json.decode(text, type=list[str])))
            return
    if text:
        yield text


def _read_table(
    source: object, names: Sequence[str], rows_of: Callable[[list[str]], Iterable[dict[str, Any]]]
) -> Iterator[tuple[str, QuestionRow]]:
    """The questions of a table with columns of these `names`, with their ids; `rows_of` reads some of its columns.

    Rows without a text are left out, and in a table with answers those that lack them. A data set may repeat an id, as
    those that join several benchmarks do: a repeated id gets the row's number as a suffix.
    """
    columns = find_columns(names)
    if columns is None:
        said = f"{source} has no column of questions, only {', '.join(names[:12])}"
        raise BadInput(said, hint=f"the column must be called {', '.join(QUESTION[:-1])} or {QUESTION[-1]}")
    seen: set[str] = set()
    for number, row in enumerate(rows_of(columns.names), start=1):
        if question := columns.read(row):
            name = question.id or f"q{number}"
            name = f"{name}-{number}" if name in seen else name
            seen.add(name)
            yield name, question


def _read_parquet(path: Path) -> Iterator[tuple[str, QuestionRow]]:
    needed = "Parquet needs pyarrow; JSON Lines (FILE.jsonl) does not"
    arrow, parquet = (import_extra(name, needed, extra="parquet") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        with parquet.ParquetFile(path) as file:

            def read(columns: list[str]) -> Iterator[dict[str, Any]]:
                return chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(1024, columns=columns))

            yield from _read_table(path, file.schema_arrow.names, read)
    except (arrow.ArrowException, UnicodeDecodeError) as error:  # a program may write any bytes as text
        raise BadInput(f"{path} is not a valid Parquet file: {str(error).splitlines()[0]}") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error


# ------------------------------------------------------------------------------------------------- data sets of the hub

PREFIX = "hub:"
SHAPE = "hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]"
NO_ANSWERS = f"a data set needs a column called {', '.join(ANSWERS[:-1])} or {ANSWERS[-1]}"
_TIMEOUT_S = 5.0
_NAME = r"\w[\w.-]{0,95}"
_SOURCE = re.compile(
    rf"hub:(?P<id>{_NAME}/{_NAME})(/(?P<subset>{_NAME}))?(@(?P<revision>\w[\w./-]{{0,99}}))?(:(?P<split>[\w.-]{{1,96}}))?"
)


class HubQuestions(Struct, frozen=True):
    """A data set of the hub, or a part of it; "" is the only subset or split, or the hub's default revision.

    HubQuestions("hotpotqa/hotpot_qa", subset="distractor", revision="main", split="validation")
    """

    id: str
    subset: str = ""
    revision: str = ""
    split: str = ""

    def __str__(self) -> str:
        parts = zip(("/", "@", ":"), (self.subset, self.revision, self.split), strict=True)
        return f"{PREFIX}{self.id}" + "".join(mark + part for mark, part in parts if part)


def is_hub(source: str | Path) -> bool:
    """True if questions are to be read from the hub, and not from a file: `is_hub("hub:acme/qa")`."""
    return str(source).startswith(PREFIX)


def is_table(source: str | Path) -> bool:
    """True for rows with columns, of the hub or a Parquet file: `is_table("train.parquet")`."""
    return is_hub(source) or Path(source).suffix.lower() == ".parquet"


def parse_hub(source: str | Path) -> HubQuestions:
    """The data set that `hub:...` names; BadInput if the text has another form."""
    found = _SOURCE.fullmatch(str(source))
    if not found:
        raise BadInput(f"{source} names no data set of the hub", hint=f"--questions {SHAPE}")
    return HubQuestions(**{part: text or "" for part, text in found.groupdict().items()})


def read_hub(source: str | Path) -> Iterator[tuple[str, QuestionRow]]:
    """The questions of a data set with their ids."""
    asked = parse_hub(source)
    rows = _open_rows(asked)
    return _read_table(asked, rows.column_names, rows.select_columns)


def _open_rows(asked: HubQuestions) -> Any:
    """The rows of the split, downloaded into the cache of `datasets` unless they are there; BadInput if that fails."""
    datasets = import_extra("datasets", "questions of the hub need the package datasets", extra="hub")
    from huggingface_hub import constants

    is_offline = bool(constants.HF_HUB_OFFLINE)
    # The prefix keeps a folder of this name in the working directory from being read instead.
    path = f"hf://datasets/{asked.id}"
    commit = (asked.revision or None) if is_offline else _find_commit(asked)
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # the error below says in one line what failed
    try:
        subset = _choose(asked, "subset", datasets.get_dataset_config_names(path, revision=commit))
        builder = datasets.load_dataset_builder(path, subset, revision=commit)
        if is_offline and asked.revision not in ("", builder.hash):
            raise BadInput(f"the cache of datasets has another revision than {asked}", hint="unset HF_HUB_OFFLINE")
        split = _choose(asked, "split", [str(split) for split in builder.info.splits or builder.config.data_files])
        builder.download_and_prepare()
        return builder.as_dataset(split=split)
    except BadInput:
        raise
    except Exception as error:  # `datasets` raises whatever its many readers raise
        reason = str(error.__cause__ or error).strip().partition("\n")[0] or type(error).__name__
        raise BadInput(f"{asked} cannot be read: {reason}", hint=f"--questions {SHAPE}, or a JSONL file") from error
    finally:
        datasets.logging.set_verbosity(verbosity)


def _find_commit(asked: HubQuestions) -> str:
    """The commit of the revision; BadInput at once without a network, where a download would fail after minutes."""
    from huggingface_hub import HfApi

    try:
        found = HfApi().dataset_info(asked.id, revision=asked.revision or None, timeout=_TIMEOUT_S)
    except Exception as error:
        why = explain_hub_error(error)
        hint = "HF_HUB_OFFLINE=1 uses what was downloaded before; or --questions FILE"
        raise BadInput(f"{asked} is {why}", hint=hint if "reachable" in why else f"--questions {SHAPE}") from error
    return str(found.sha)


def _choose(asked: HubQuestions, part: Literal["subset", "split"], names: list[str]) -> str:
    """The subset or split that is asked for, or the only one; BadInput if it is unknown or not named among several."""
    name = str(getattr(asked, part))
    if name in names:
        return name
    if not name and len(names) == 1:
        return names[0]
    known = ", ".join(names[:12])
    said = f"{asked} has no {part} {name}, only {known}" if name else f"{asked} has the {part}s {known}: name one"
    raise BadInput(said, hint=f"--questions {structs.replace(asked, **{part: names[0]})}")
