"""Per-question results in a small file, and the scores of the evidence that was quoted.

    {"id":"q1","text_hash":"3f0c9a51","set":"popqa","answer":"Venn","exact_match":1.0,"f1":1.0,"end":"answered",...}

    write_items([score.item for score in scores], Path("warm.items.jsonl.gz"))
    read_items(Path("warm.items.jsonl.gz"))[0].f1 -> 1.0

The file is JSON Lines, one question per line, gzipped if its name ends in `.gz`. Questions, documents and quoted spans
are left out, so a file of some thousand questions takes tens of kilobytes and can be committed with its table. Equal
items give equal bytes.

    quotes_gold("Venn built it in 1702.", question, shown_passages(episode)) -> True
    score_evidence(items).gold_joint -> Interval(mean=0.22, low=0.18, high=0.26, num=500)

Where a question names the passages that prove its answer (`gold_ids`), no judge is needed: a span is *gold* if it is
verbatim in one of them that was shown, and contains an accepted answer. That is exact only where `gold_ids` are
complete: where some of the proving passages are missing, right quotations are counted as wrong.
"""

import gzip
import hashlib
import io
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field, structs

from quaere.chat.spans import locate_span
from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.judges.judge import holds_answer
from quaere.records import EndReason, Passage, Question
from quaere.search.json_lines import decode_lines

SUFFIX = ".items.jsonl.gz"
_SUFFIXES = (".jsonl", ".jsonl.gz")


class Described(Struct, frozen=True, kw_only=True):
    """The fields that `QuestionScore` and `Item` share: about a question, its answer and the quoted span.

    `gold` is True if the span is in a gold passage and contains an accepted answer, None if no span was requested or
    the question's gold passages are not known. `kind` is the kind of answer asked for, "" in files written before it
    was stored; `right_option` and `option` are, for a closed kind, the option that is right and the one that the answer
    takes (`answer_kinds`). `answerable` is false for a question without accepted answers, `abstained` true if the model
    said that the documents do not answer, and `confidence` that of its answer, None if not known.

        Described(kind="yes/no", right_option="yes", option="no")
    """

    gold: bool | None = None
    kind: str = ""
    right_option: str = ""
    option: str = ""
    abstained: bool = False
    answerable: bool = True
    confidence: float | None = None


class Item(Described, frozen=True, omit_defaults=True):
    """The result of one question. `answer` is None if the episode ended without one.

    `text_hash` distinguishes questions with the same id. `present`, `verbatim` and `supported` describe the quoted
    span: None if no span was requested; `supported` is also None if the span was not judged. `facts`, the number of
    facts the question combines, is stored under the name `hops`.

        Item(id="q1", text_hash="3f0c9a51", set="popqa", answer="Venn", exact_match=1.0, f1=1.0, end="answered",
             num_turns=2, num_searches=1, num_tokens=57)
    """

    id: str
    text_hash: str
    answer: str | None
    exact_match: float
    f1: float
    end: EndReason
    num_turns: int
    num_searches: int
    num_tokens: int
    num_malformed: int = 0
    search_failed: bool = False
    set: str = ""
    facts: int = field(default=0, name="hops")
    searches_needed: int = 0
    present: bool | None = None
    verbatim: bool | None = None
    supported: bool | None = None

    @property
    def right(self) -> bool:
        """True if an answerable question's answer matches exactly, or an unanswerable question was refused."""
        return self.exact_match == 1.0 if self.answerable else self.abstained and not self.search_failed

    @property
    def is_answer(self) -> bool:
        """True if the model gave an answer and did not abstain."""
        return self.answer is not None and not self.abstained

    @property
    def key(self) -> tuple[str, str]:
        """Key shared by all results of the same question."""
        return self.id, self.text_hash

    @property
    def joint(self) -> bool:
        """True if the answer is right and the span was judged to support it."""
        return self.exact_match == 1.0 and self.supported is True

    @property
    def gold_joint(self) -> bool:
        """True if the answer is right, and the span is in a gold passage and contains an accepted answer."""
        return self.exact_match == 1.0 and self.gold is True


def hash_text(text: str) -> str:
    """Eight hex digits of the SHA-256 of a question's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def check_items_path(path: Path) -> None:
    """Raise BadInput if the file name does not end in .jsonl or .jsonl.gz, by which readers recognise the format."""
    if not path.name.endswith(_SUFFIXES):
        raise BadInput(f"a file of per-question results must end in {' or '.join(_SUFFIXES)}, not {path.name}")


def items_name(path: Path) -> str:
    """The name of the result in an items file: `warm` for `results/warm.items.jsonl.gz`."""
    return path.name.partition(".jsonl")[0].removesuffix(".items")


def write_items(items: Sequence[Item], path: Path) -> None:
    """Write one line per question; an existing file is replaced atomically."""
    check_items_path(path)
    data = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
    if path.suffix == ".gz":
        packed = io.BytesIO()  # without time and file name, so that equal items give equal bytes
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as file:
            file.write(data)
        data = packed.getvalue()
    write_file(path, data)


def read_items(path: Path) -> list[Item]:
    """Results written by `write_items`; an error names the number of the invalid line."""
    hint = "quaere eval ... --items FILE.jsonl.gz"
    items = [item for _, item in decode_lines(path, Item, what="a per-question result", hint=hint)]
    if not items:
        raise BadInput(f"{path} contains no per-question result", hint=hint)
    if len({item.id for item in items}) < len(items):
        raise BadInput(f"{path} contains two results with the same question id; ids must be unique")
    return items


# ------------------------------------------------------------------------------------------------------ quoted evidence


class EvidenceScore(Struct, frozen=True):
    """Evidence scores of a question set, as shares of its questions: a missing span counts as a failure.

    `gold` and `gold_joint` are shares of the questions whose gold passages are known, the others of all questions.

        EvidenceScore(present=Interval(...), verbatim=Interval(...), supported=Interval(...), joint=Interval(...))
    """

    present: Interval  # a span was given
    verbatim: Interval  # the span is in a passage that was returned in that episode
    supported: Interval | None = None  # evidence score: the judge decided that the span supports an accepted answer
    joint: Interval | None = None  # supported, and the answer is an exact match
    gold: Interval | None = None  # the span is of a gold passage and holds an accepted answer
    gold_joint: Interval | None = None  # gold, and the answer is an exact match


def quotes_gold(span: str, question: Question, shown: Iterable[Passage]) -> bool | None:
    """True if the span is in a gold passage that was shown and contains an accepted answer; None without gold ids.

    As in `StringCheck`, the span must contain the answer and at least three other words.
    """
    if not question.gold_ids:
        return None
    gold = [passage for passage in shown if passage.doc_id in question.gold_ids]
    is_quoted = any(locate_span(span, passage.text) is not None for passage in gold)
    return is_quoted and holds_answer(span, question.answers)


def keep_whole_gold(questions: Sequence[Question], sets: Collection[str] | None) -> list[Question]:
    """The questions, with gold ids removed from all question sets but the named ones, where the ids are complete.

    If `sets` is None, the ids stay in sets all of whose questions have some. `BadInput` for an unknown set, or a named
    one with a question that has none.
    """
    known = {question.set for question in questions}
    lacking = {question.set for question in questions if question.answers and not question.gold_ids}
    for name in sets or ():
        if name not in known:
            raise BadInput(f"no question is of the set {name!r}; there are {', '.join(sorted(known)) or 'none'}")
        if name in lacking:
            raise BadInput(f"questions of the set {name} lack gold_ids, so its gold passages are not complete")
    whole = known - lacking if sets is None else set(sets)
    return [question if question.set in whole else structs.replace(question, gold_ids=()) for question in questions]


def score_evidence(scores: Sequence[Item]) -> EvidenceScore | None:
    """Aggregate evidence scores; None if no evidence was requested."""
    if any(score.present is None for score in scores):
        return None
    is_judged = all(score.supported is not None for score in scores)
    known = [score for score in scores if score.gold is not None]
    measured = {"present": scores, "verbatim": scores}
    measured |= {"supported": scores, "joint": scores} if is_judged else {}
    measured |= {"gold": known, "gold_joint": known} if known else {}
    shares = {name: [getattr(score, name) is True for score in chosen] for name, chosen in measured.items()}
    return EvidenceScore(**{name: rate_interval(values) for name, values in shares.items()})
