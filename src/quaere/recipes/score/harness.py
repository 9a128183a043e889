"""The harness as JSON, its parser, and the bounds that every harness must keep.

    {"dimension_constraints": {"k": 4, "must_include": ["factuality", "depth"], "weight_min": 0.1, "weight_max": 0.5},
     "process_constraints": {"require_search": true, "require_gap_analysis": true, "require_verification": true,
                             "citation_cross_check": true, "min_number_of_tool_call": 1},
     "pool": {"drop": ["balance"], "add": [{"name": "chronology", "text": "Events stand in the order they happened."}]},
     "notes": "Scores lie close together: use the whole scale."}

`must_include` is the primary dimension, or a list that begins with it. `pool` describes the changes to the previous
harness's pool; `pool`, `notes` and `require_search` may be left out. A harness never picks a further dimension or a
weight: the evaluator does.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field, structs

from quaere.chat.dimensions import POOL
from quaere.disk import read_regular, write_file
from quaere.errors import BadInput
from quaere.records import Dimension, DimensionRules, Harness, ProcessRules
from quaere.setting_types import NonNegativeInt, PositiveInt

# Names stand unquoted in prompts and in markup, so they may hold nothing but letters, digits, "_" and "-".
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
LEAST_K = 2  # the primary dimension is fixed, so with fewer than 2 there would be nothing to choose


class HarnessLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds that every harness must keep.

        HarnessLimits(max_tool_calls=2, max_pool=16)

    Attributes:
        max_tool_calls: Most searches a harness may require of an assessment. [Quaere]
        max_pool: Most dimensions of a pool. [Quaere]
        max_dimension_chars: Most characters of a dimension's meaning. [Quaere]
        max_notes_chars: Most characters of the notes. [Quaere]
        max_chars: Most characters of a harness as JSON. [Quaere]
    """

    max_tool_calls: NonNegativeInt = 4
    max_pool: PositiveInt = 24
    max_dimension_chars: PositiveInt = 300
    max_notes_chars: NonNegativeInt = 1000
    max_chars: PositiveInt = 20_000


class _DimensionConstraints(Struct, frozen=True, forbid_unknown_fields=True):
    k: int
    must_include: str | tuple[str, ...]
    weight_min: float
    weight_max: float


class _ProcessConstraints(
    Struct, frozen=True, forbid_unknown_fields=True, rename={"min_tool_calls": "min_number_of_tool_call"}
):
    require_gap_analysis: bool
    require_verification: bool
    citation_cross_check: bool
    min_tool_calls: int
    require_search: bool | None = None


class _Added(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    text: str


class _PoolChanges(Struct, frozen=True, forbid_unknown_fields=True):
    drop: tuple[str, ...] = ()
    add: tuple[_Added, ...] = ()


class _HarnessForm(Struct, frozen=True, forbid_unknown_fields=True):
    dimension_constraints: _DimensionConstraints
    process_constraints: _ProcessConstraints
    pool: _PoolChanges = _PoolChanges()
    notes: str = ""


def parse_harness(json_text: str, previous: Harness, limits: HarnessLimits) -> Harness | str:
    """The harness that follows `previous`, or in one line why it cannot be used.

    A harness equal to `previous` is `previous` itself; any other is its next version.

        parse_harness('{"k": 4}', previous, HarnessLimits()) -> "the harness does not fit its schema: Object ..."
    """
    if len(json_text) > limits.max_chars:
        return f"the harness is longer than {limits.max_chars} characters"
    try:
        form = msgspec.json.decode(json_text, type=_HarnessForm)
    except msgspec.ValidationError as error:
        return f"the harness does not fit its schema: {one_line(str(error))}"
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "the harness is not JSON"
    pool = _change_pool(previous.pool, form.pool)
    if isinstance(pool, str):
        return pool
    given = {name: value for name, value in structs.asdict(form.process_constraints).items() if value is not None}
    rules = DimensionRules(**structs.asdict(form.dimension_constraints))
    if len(rules.required) == 1:  # a list of one says the same as a name
        rules = structs.replace(rules, must_include=rules.primary)
    process = structs.replace(previous.process, **given)
    harness = Harness(previous.version, pool, rules, process, form.notes.strip())
    return find_fault(harness, limits) or follow(previous, harness)


def follow(previous: Harness, harness: Harness) -> Harness:
    """`harness` as the version after `previous`, or `previous` itself if nothing differs."""
    is_same = structs.replace(harness, version=previous.version) == previous
    return previous if is_same else structs.replace(harness, version=previous.version + 1)


def _change_pool(pool: Sequence[Dimension], changes: _PoolChanges) -> tuple[Dimension, ...] | str:
    """The pool with dimensions dropped, then added, so that dropping and adding one changes its meaning."""
    if missing := set(changes.drop) - {item.name for item in pool}:
        return f"the pool has no dimension {one_line(min(missing))} to drop"
    kept = tuple(item for item in pool if item.name not in changes.drop)
    return kept + tuple(Dimension(item.name, item.text.strip()) for item in changes.add)


def find_fault(harness: Harness, limits: HarnessLimits) -> str:
    """The first bound that a harness breaks; "" if it keeps all.

    find_fault(Harness(0, POOL, DimensionRules(k=1)), HarnessLimits()) -> "k must be from 2 to 10, the size of the pool"
    """
    rules, names = harness.dimensions, [item.name for item in harness.pool]
    are_words = all(_NAME.fullmatch(name) for name in names)
    are_explained = all(0 < len(item.text) <= limits.max_dimension_chars for item in harness.pool)
    are_in_pool = bool(rules.required) and set(rules.required) <= {*names}
    are_ordered = 0 <= rules.weight_min <= rules.weight_max <= 1
    has_fit_calls = 0 <= harness.process.min_tool_calls <= limits.max_tool_calls
    bounds = (
        ("the name of a dimension must be a word of small letters, at most 32 characters long", are_words),
        ("a dimension stands in the pool twice", len(set(names)) == len(names)),
        (f"the pool may hold at most {limits.max_pool} dimensions", len(names) <= limits.max_pool),
        (f"what a dimension means must be said, in at most {limits.max_dimension_chars} characters", are_explained),
        (f"k must be from {LEAST_K} to {len(names)}, the size of the pool", LEAST_K <= rules.k <= len(names)),
        ("must_include must be a dimension of the pool", are_in_pool),
        ("must_include names a dimension twice", len(set(rules.required)) == len(rules.required)),
        (f"must_include has more than k = {rules.k} dimensions", len(rules.required) <= rules.k),
        ("weight_min and weight_max must lie in this order between 0 and 1", are_ordered),
        (f"min_number_of_tool_call must be from 0 to {limits.max_tool_calls}", has_fit_calls),
        (
            f"the notes may have at most {limits.max_notes_chars} characters",
            len(harness.notes) <= limits.max_notes_chars,
        ),
    )
    return next((fault for fault, is_kept in bounds if not is_kept), "")


def default_harness(
    *,
    pool: Sequence[Dimension] = POOL,
    dimensions: DimensionRules = DimensionRules(),  # noqa: B008 (it is frozen)
    process: ProcessRules = ProcessRules(),  # noqa: B008
    notes: str = "",
    limits: HarnessLimits = HarnessLimits(),  # noqa: B008
) -> Harness:
    """The initial harness of a run, version 0; `BadInput` if it breaks a bound.

    default_harness(dimensions=DimensionRules(k=3))
    """
    harness = Harness(0, tuple(pool), dimensions, process, notes)
    if fault := find_fault(harness, limits):
        raise BadInput(f"the harness of the settings (harness.*) cannot be used: {fault}")
    return harness


def encode_harness(harness: Harness, previous: Harness | None = None) -> str:
    """A harness as JSON for `parse_harness`; with `previous`, also the changes of the pool since.

    parse_harness(encode_harness(new, previous), previous, limits) == new
    """
    before = harness.pool if previous is None else previous.pool
    kept = [item for item in before if item in harness.pool]
    form = _HarnessForm(
        _DimensionConstraints(**structs.asdict(harness.dimensions)),
        _ProcessConstraints(**structs.asdict(harness.process)),
        _PoolChanges(
            drop=tuple(item.name for item in before if item not in kept),
            add=tuple(_Added(item.name, item.text) for item in harness.pool if item not in kept),
        ),
        harness.notes,
    )
    return msgspec.json.encode(form).decode()


def one_line(text: str, num_chars: int = 200) -> str:
    """The first `num_chars` characters of a text on one line, without control characters."""
    printable = "".join(character if character.isprintable() else " " for character in text[:num_chars])
    return " ".join(printable.split())


# ----------------------------------------------------------------------------------------------------------- statistics


class Statistics(Struct, frozen=True, forbid_unknown_fields=True):
    """The input of a meta-harness. Scores are on a scale from 0 to 1; None is what was not measured.

    `score_spread` is the mean, over questions with several scored reports, of the standard deviation of their scores;
    `num_scored` is the number of scored reports, `mean_reward` a share of the most their rubric allows. Changes are
    relative to the previous statistics (`compare`).

        Statistics(step=10, num_scored=64, mean_reward=0.8, score_spread=0.12, share_at_ceiling=0.05)
    """

    step: int = 0
    num_scored: int = 0
    mean_reward: float = 0.0
    score_spread: float | None = 0.0
    share_at_ceiling: float = 0.0
    share_under_verified: float = 0.0
    share_invalid_rubrics: float = 0.0
    share_invalid_assessments: float = 0.0
    mean_searches: float = 0.0
    citation_validity: float | None = None
    consistency: float | None = None
    diversity: float | None = None
    entropy: float | None = None
    reward_change: float = 0.0
    citation_change: float = 0.0
    entropy_change: float = 0.0
    dimension_counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # JSON has no NaN: it would be stored as null, and the state could not be read again.
        for name, value in structs.asdict(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, not {value}")


def compare(now: Statistics, before: Statistics | None) -> Statistics:
    """`now` with its changes since `before`; a change is 0 if there is nothing to compare with.

    compare(Statistics(mean_reward=0.75), Statistics(mean_reward=0.5)).reward_change -> 0.25
    """
    before = before or now
    return structs.replace(
        now,
        reward_change=now.mean_reward - before.mean_reward,
        citation_change=_change(now.citation_validity, before.citation_validity),
        entropy_change=_change(now.entropy, before.entropy),
    )


def _change(now: float | None, before: float | None) -> float:
    return 0.0 if now is None or before is None else now - before


# ------------------------------------------------------------------------------------------------------------- versions

FILE = "harness.jsonl"


class HarnessVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """The harness in force after a step. With a `fault`, the new harness was unusable and the previous one is kept.

    HarnessVersion(step=0, harness=Harness(version=0, ...), why="default")
    """

    step: int
    harness: Harness
    statistics: Statistics | None = None
    why: str = ""
    fault: str = ""


def describe_change(before: Harness, after: Harness) -> str:
    """The differences in a few words; "" if there are none. Changed notes are mentioned, not repeated.

    describe_change(old, new) -> "k 4 → 5, min_tool_calls 1 → 2, pool + chronology, notes"
    """
    old, new = (structs.asdict(one.dimensions) | structs.asdict(one.process) for one in (before, after))
    said = [f"{name} {_say(old[name])} → {_say(value)}" for name, value in new.items() if value != old[name]]
    names_before, names_after = ({item.name for item in harness.pool} for harness in (before, after))
    said += [f"pool + {item.name}" for item in after.pool if item.name not in names_before]
    said += [f"pool - {item.name}" for item in before.pool if item.name not in names_after]
    said += [f"reworded {item.name}" for item in after.pool if item.name in names_before and item not in before.pool]
    return ", ".join([*said, "notes"] if before.notes != after.notes else said)


def _say(value: str | float | bool | tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " and ".join(value)
    return value if isinstance(value, str) else f"{value:g}"


class Versions:
    """The file of harness versions in a run's directory: one line of JSON each, with the statistics that led to it.

    A line is synced before `append` returns. An incomplete last line, from a process that died while writing, is
    skipped in reading and removed by the next change.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE

    def read(self) -> list[HarnessVersion]:
        """All versions, oldest first; none if there is no file yet."""
        try:
            content = read_regular(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}") from error
        whole = content[: content.rfind(b"\n") + 1]
        try:
            return [msgspec.json.decode(line, type=HarnessVersion) for line in whole.splitlines()]
        except (msgspec.DecodeError, UnicodeError, ValueError) as error:
            raise BadInput(f"{self.path} has a line that is not a harness version: {error}") from error

    def append(self, version: HarnessVersion) -> None:
        """Add a version. Entries of the same or later steps belong to undone steps and are removed."""
        self._write([*(one for one in self.read() if one.step < version.step), version])

    def truncate_after(self, step: int) -> None:
        """Remove the versions of steps after this one."""
        versions = self.read()
        if self.path.exists():
            self._write([one for one in versions if one.step <= step])

    def _write(self, versions: list[HarnessVersion]) -> None:
        """Rewrite the whole file: it is small, and a rename is atomic."""
        write_file(self.path, b"".join(msgspec.json.encode(version) + b"\n" for version in versions))
