"""Records that a run returns, their conversion from and to rows of `run.db`, and a filter for episodes.

index_row(episode)["question"] == "Who built the Halm bridge?"
read_candidate(candidate_row(candidate)) == candidate
"""

import json
import sqlite3
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
from msgspec import Struct, structs

from quaere.chat.spans import check_evidence
from quaere.errors import BadInput
from quaere.records import Candidate, EndReason, Episode, Evidence, Proposal, ProposeTask, RubricTask, Support
from quaere.records.episodes import TokenTrace
from quaere.records.foreign_json import decode_json
from quaere.rewards.abstention import ABSTAINED, ABSTENTION

PHASES = ("proposer", "generation", "solver", "reports")  # known names; the metric "run/phase" is an index into these,
OWN_PHASES = "phases"  # ... followed by a run's own, in this setting
PLACE = "question/place"  # metric of an evaluation's episodes, which are stored as they end: the place of the question
INFO_COLUMNS = "id, kind, created, version, settings"
# Conditions in SQL, by the metric that `Run.add_episodes` stores; older runs may have the answer's words alone. Metrics
# are searched as text, in the form that `encode_values` writes: parsing them would take several times as long.
IS_ABSTAINED = (
    f"CASE WHEN INSTR(metrics, '\"{ABSTAINED}\": ') THEN INSTR(metrics, '\"{ABSTAINED}\": 1.0') > 0 "
    f"ELSE answer IS '{ABSTENTION}' END"
)
IS_ANSWERED = f"(answered AND NOT {IS_ABSTAINED})"
_JSON_COLUMNS = ("evidence", "support", "refusals", "aliases", "proof")
_Scores, _Words, _Spans = dict[str, float], tuple[str, ...], tuple[Evidence, ...]
_CANDIDATE_COLUMNS = tuple(field.name for field in structs.fields(Candidate))


class RunInfo(Struct, frozen=True):
    """Description of a run: id, kind, time of creation, version and settings.

    RunInfo(id="ask-20250301-101500", kind="ask", created="2025-03-01T10:15:00+00:00", version="0.1.0",
            settings={"model": "smollm2-135m"})
    """

    id: str
    kind: str
    created: str
    version: str
    settings: dict[str, Any]


class RunState(Struct, frozen=True):
    """State of a run; `why` is the reason of a failure. A run whose process was killed is `stopped`.

    `unknown`: the run is of an earlier version, which recorded only the ends of training runs.

    RunState(name="failed", why="step 12: the gradient is not finite")
    """

    name: Literal["running", "stopped", "done", "failed", "unknown"]
    why: str = ""


class EpisodeRow(Struct, frozen=True):
    """Index entry of an episode; `answer` is None if the episode ended without one.

    `step` and `phase` are the episode's place in a training run, and 0 and "" in other runs.

        EpisodeRow(number=1, id="ask-0", task_id="q1", question="Who built the Halm bridge?", answer="Orsolya Venn",
                   protocol="drzero-solver", model="smollm2-135m", end="answered", num_turns=2, num_searches=1,
                   num_tokens=412, metrics={"seconds": 2.5}, step=12, phase="solver")
    """

    number: int
    id: str
    task_id: str
    question: str
    answer: str | None
    protocol: str
    model: str
    end: EndReason
    num_turns: int
    num_searches: int
    num_tokens: int
    metrics: dict[str, float]
    step: int = 0
    phase: str = ""

    @property
    def is_abstained(self) -> bool:
        """True if the episode counts as an abstention, as `IS_ABSTAINED` has it."""
        known = self.metrics.get(ABSTAINED)
        return self.answer == ABSTENTION if known is None else known == 1


class Outcome(NamedTuple):
    """How a scored attempt at a question ended: right, abstained, or (neither) wrong.

    Where the question has no answer, abstaining is right. The answer of an abstention is the phrase that abstains.

    Outcome(id="i0-s3-q1-a0", task_id="q1", question="Who built it?", answer="Brod", step=4, phase="solver",
            is_right=0, is_abstained=0)
    """

    id: str
    task_id: str
    question: str
    answer: str | None
    step: int
    phase: str
    is_right: int
    is_abstained: int


class Metric(Struct, frozen=True):
    """One value of a metric.

    Metric(step=3, value=0.25)
    """

    step: int
    value: float


class Event(Struct, frozen=True):
    """An event at a step, such as an alarm.

    Event(step=12, kind="alarm", message="the entropy is below 0.02 for 3 steps")
    """

    step: int
    kind: str
    message: str


class Frame(Struct, frozen=True):
    """Location of a zstd frame in a shard file; a frame holds the lines of one append.

    Frame(shard=0, offset=5120, length=874)
    """

    shard: int
    offset: int
    length: int


def read_info(row: Sequence[Any]) -> RunInfo:
    """The `RunInfo` of a row of `runs`, of the columns `INFO_COLUMNS`; ValueError if it is not one."""
    id, kind, created, version, settings = row
    return RunInfo(id, kind, created, version, decode_json(settings, dict[str, Any]))


def index_row(episode: Episode) -> dict[str, str | int | None]:
    """An episode's values for the table `episodes`, except its place on disk, metrics, step and phase."""
    return {
        "id": episode.id,
        "task_id": episode.task.id,
        "question": _describe_task(episode),
        "answer": _describe_outcome(episode),
        "protocol": episode.protocol,
        "model": episode.model,
        "end": episode.end,
        "answered": int(episode.end == "answered"),
        "num_turns": len(episode.turns),
        "num_searches": episode.num_searches,
        "num_tokens": sum(len(segment.token_ids) for segment in episode.segments),
    }


def candidate_row(candidate: Candidate) -> dict[str, str | int | None]:
    """A candidate as a row of the table `candidates`, by column name."""
    row = structs.asdict(candidate)
    encoded = {name: json.dumps(msgspec.to_builtins(row[name])) for name in _JSON_COLUMNS if row[name] is not None}
    return {**row, **encoded, "scores": encode_values(candidate.scores)}


def read_candidate(row: sqlite3.Row | Mapping[str, Any]) -> Candidate:
    """The candidate of a row of `candidates`; columns missing in an older schema get the defaults of `Candidate`."""
    values = dict(row)
    decoded = {name: json.loads(values[name]) for name in ("scores", *_JSON_COLUMNS) if values.get(name) is not None}
    return msgspec.convert(values | decoded, Candidate)


def read_candidates(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[Candidate]:
    """The candidates of many rows of the table `candidates`: the same as `read_candidate` on each, but faster.

    A run may have tens of thousands. Columns are passed on by position, and JSON that several rows share, such as an
    empty list, is parsed once.
    """
    if tuple(columns) != ("number", *_CANDIDATE_COLUMNS):  # an older schema
        return [read_candidate(dict(zip(columns, row, strict=True))) for row in rows]
    read = cache(lambda text, kind: msgspec.convert(json.loads(text), kind))
    found = []
    for _, *head, scores, span, evidence, support, refusals, cluster, kind, aliases, searches, proof in rows:
        told = None if evidence is None else msgspec.convert(json.loads(evidence), Evidence)
        tested = None if support is None else msgspec.convert(json.loads(support), Support)
        tail = (read(refusals, _Words), cluster, kind, read(aliases, _Words), searches, read(proof, _Spans))
        values: list[Any] = [*head, dict(read(scores, _Scores)), span, told, tested, *tail]
        found.append(Candidate(*values))
    return found


def check_candidate(candidate: Candidate, read_document: Callable[[str], str] | None) -> None:
    """Raise BadInput if the evidence is not in its document; without the document, if its offsets do not fit it."""
    evidence = candidate.evidence
    if evidence is None:
        return
    try:
        if read_document is not None:
            check_evidence(evidence, read_document(evidence.doc_id))
        elif evidence.start < 0 or evidence.end - evidence.start != len(evidence.text):
            raise BadInput(f"evidence of {len(evidence.text)} characters does not fit {evidence.start}:{evidence.end}")
    except BadInput as error:
        raise BadInput(f"candidate {candidate.id} cannot be stored: {error}") from error


def insert(
    database: sqlite3.Connection, table: str, rows: Sequence[Mapping[str, Any]], *, replace: bool = False
) -> None:
    """Insert rows into a table in one transaction: all or none.

    insert(database, "events", [{"step": 3, "kind": "alarm", "message": "the entropy is low"}])
    """
    if rows:
        verb = "INSERT OR REPLACE" if replace else "INSERT"
        columns, values = ", ".join(rows[0]), ", ".join(f":{column}" for column in rows[0])
        with database:
            database.executemany(f"{verb} INTO {table} ({columns}) VALUES ({values})", rows)


def encode_values(values: Mapping[str, float]) -> str:
    """Named numbers as JSON, written by `json` because it keeps NaN and infinity.

    encode_values({"seconds": 2.5, "odd": math.nan}) == '{"seconds": 2.5, "odd": NaN}'
    """
    return json.dumps({name: float(value) for name, value in values.items()})


def encode_episode(episode: Episode) -> bytes:
    """The episode as one line of JSON that decodes to an equal episode; raises BadInput otherwise, as for NaN.

    encode_episode(episode) == b'{"id":"ask-0","task":{"type":"solve",...},...}'
    """
    try:
        line = msgspec.json.encode(episode)
        if msgspec.json.decode(line, type=Episode) != episode:
            raise ValueError("its JSON does not decode to the same episode (NaN is not allowed)")
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(f"episode {episode.id} cannot be stored: {error}") from error
    return line


def _describe_task(episode: Episode) -> str:
    """The text that lists show for an episode: its question, a rubric's questions, or a proposer's document title.

    A proposer that rewords a question is listed by that question.
    """
    task = episode.task
    if isinstance(task, ProposeTask) and task.given:
        return task.given.text
    if isinstance(task, ProposeTask):
        return task.document.title if task.document else ""
    if isinstance(task, RubricTask):
        return " / ".join(task.questions)
    return task.question.text


def _describe_outcome(episode: Episode) -> str | None:
    outcome = episode.outcome
    if isinstance(outcome, Proposal):
        return f"{outcome.question} -> {outcome.answer}"
    return None if outcome is None else outcome.text


# -------------------------------------------------------------------------------------------------- filter and groups

# Conditions in SQL of the filter's fields that are not columns with an equal value.
_CONDITIONS = {
    "answered": f"{IS_ANSWERED} = :answered",
    "least_searches": "num_searches >= :least_searches",
    "most_searches": "num_searches <= :most_searches",
    "text": "(question LIKE :text ESCAPE '\\' OR answer LIKE :text ESCAPE '\\')",
}


class EpisodeConditions(TypedDict, total=False):
    """Conditions on episodes as keywords: `run.index(phase="solver", answered=True)`."""

    end: EndReason | None
    answered: bool | None
    protocol: str | None
    step: int | None
    phase: str | None


class EpisodeFilter(Struct, frozen=True):
    """A filter for rows of the index: a row must satisfy every condition that is set.

    `answered` episodes have an answer and did not abstain. `text` is searched for in question and answer, ignoring the
    case of ASCII letters. `searches` are inclusive bounds.

        EpisodeFilter(step=5, phase="solver", end="answered", least_searches=2, text="bridge")
    """

    id: str | None = None
    task_id: str | None = None
    step: int | None = None
    phase: str | None = None
    protocol: str | None = None
    end: EndReason | None = None
    answered: bool | None = None
    least_searches: int | None = None
    most_searches: int | None = None
    text: str = ""

    def where(self) -> tuple[str, dict[str, Any]]:
        """The filter as an SQL condition with named parameters, and the values of these parameters."""
        values = {name: value for name, value in structs.asdict(self).items() if value is not None}
        if text := values.pop("text"):
            for special in ("\\", "%", "_"):
                text = text.replace(special, f"\\{special}")
            values["text"] = f"%{text}%"
        return " AND ".join(["TRUE", *(_CONDITIONS.get(name, f"{name} = :{name}") for name in values)]), values


class EpisodeGroup(Struct, frozen=True):
    """The attempts at one question at one step by one protocol, which group-relative advantages compare.

    A group has only the attempts that a filter selects.

    EpisodeGroup(task_id="i0g-000003", question="Who built it?", step=5, phase="solver", protocol="drzero-solver",
                 num_attempts=8, num_answered=7, mean_searches=1.5)
    """

    task_id: str
    question: str
    step: int
    phase: str
    protocol: str
    num_attempts: int
    num_answered: int
    mean_searches: float


# --------------------------------------------------------------------------------------------------------- token traces


TRACE_COLUMNS = "places, advantages, logprobs, entropies"


def trace_row(episode_id: str, step: int, trace: TokenTrace) -> dict[str, str | int | bytes]:
    """The row of an episode's trace: each list is an array of 32-bit numbers, little-endian."""
    packed = {
        name: struct.pack(f"<{len(values)}{'i' if name == 'places' else 'f'}", *values)
        for name, values in structs.asdict(trace).items()
    }
    return {"episode_id": episode_id, "step": step, **packed}


def read_trace(row: Sequence[bytes]) -> TokenTrace:
    """The token trace in a row of the columns `TRACE_COLUMNS`."""
    places, *values = row
    return TokenTrace(_unpack("i", places), *(_unpack("f", value) for value in values))


def _unpack(kind: str, packed: bytes) -> tuple[Any, ...]:
    return struct.unpack(f"<{len(packed) // 4}{kind}", packed)
