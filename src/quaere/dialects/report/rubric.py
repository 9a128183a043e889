"""Protocol of the rubric chooser: the evaluator chooses the dimensions and weights that reports are graded by.

    <think>Dates differ between sources here.</think>
    <rubric>
    factuality
    coverage: 0.4
    balance: 0.2
    </rubric>

The primary dimension is alone on its line; the others have weights. A rubric that breaks a rule of the harness is
`Malformed`, and the caller then uses `default_rubric`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from quaere.chat.messages import Message, Part, Quoted
from quaere.chat.protocol import PromptStyle, Protocol
from quaere.chat.tags import find_blocks, has_unclosed
from quaere.dialects.report.evaluator_prompts import pool_parts, rubric_form, rubric_system
from quaere.dialects.roles import PlainProtocol, RoleDialect
from quaere.records import Action, Failure, Harness, Malformed, Rubric, RubricTask, SearchResult, Task, Turn, Weight

MAX_RUBRIC_CHARS = 2000

_LINE = re.compile(r"\s*+(?:[-*]\s++)?([^:]++)(?::(.*+))?")
_WEIGHT = re.compile(r"\s{0,9}([0-9]{0,3}(?:\.[0-9]{1,9})?)\s{0,9}")


class RubricChooser(PlainProtocol):
    """Protocol that chooses a rubric in one turn.

    `marks` names the rubric block, so a turn records where the block's tokens begin (`acts_at`).

        RubricChooser(harness).read("<rubric>\\nfactuality\\ncoverage: 0.4\\n</rubric>")
        -> Rubric("factuality", (Weight("coverage", 0.4),))       # where the harness asks for two dimensions
    """

    name = "rubric-chooser"
    stop: tuple[str, ...] = ("</rubric>",)
    marks: tuple[str, ...] = ("rubric",)

    def __init__(self, harness: Harness, *, style: PromptStyle = "full") -> None:
        self.harness = harness
        self.style = style

    def opening(self, task: Task) -> list[Message]:
        """The system prompt, then the dimensions to choose from, the questions, and a sample of the documents."""
        if not isinstance(task, RubricTask):
            raise TypeError(f"{self.name} chooses rubrics; it got a {type(task).__name__}")
        if task.harness != self.harness:
            raise ValueError(f"the task's harness differs from the harness {self.name} was opened with")
        parts: list[Part] = [*pool_parts(self.harness, task.hints, self.style), "Questions:\n"]
        for question in task.questions:
            parts += ["- ", Quoted(question), "\n"]
        for number, passage in enumerate(task.passages, start=1):
            parts += [f"\nA document, {number}:\n", Quoted(passage.titled_text), "\n"]
        return [Message("system", (rubric_system(self.style, self.harness.dimensions),)), Message("user", tuple(parts))]

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first rubric outside a thought; `Malformed` if the harness does not allow it."""
        return read_rubric(text, self.harness)

    def reply(
        self,
        action: Action,
        results: Sequence[SearchResult],
        failure: Failure | None,
        earlier: Sequence[Turn] = (),
        *,
        final: bool = False,
    ) -> Message:
        """The error in the rubric and how to write one, used where a second turn is allowed."""
        reason = action.reason if isinstance(action, Malformed) else "that was not expected here"
        return Message(
            "user", (f"That rubric could not be used: {reason}. Write {rubric_form(self.harness.dimensions)}.",)
        )


def read_rubric(text: str, harness: Harness) -> Rubric | Malformed:
    """The rubric in a turn; `Malformed` if there is none or if it breaks a rule of the harness.

    The rules: exactly `k` different dimensions of the pool; only `must_include` has no weight; the weights of the
    others lie within their bounds. A line may begin with a dash.

        read_rubric("<rubric>\\nfactuality\\ncoverage: 0.4\\n</rubric>", harness)
        -> Rubric("factuality", (Weight("coverage", 0.4),))
        read_rubric("<rubric>\\nfactuality\\ncoverage: 7\\n</rubric>", harness)
        -> Malformed("a weight must be a number from 0.1 to 0.5")
    """
    blocks = [block for block in find_blocks(text, ("think", "rubric")) if block.name == "rubric"]
    if not blocks:
        unclosed = has_unclosed(text, "rubric")
        return Malformed("the rubric block is not closed" if unclosed else "there is no rubric")
    content = blocks[0].content
    if len(content) > MAX_RUBRIC_CHARS:
        return Malformed("the rubric is too long")
    try:
        return _check(_read_lines(content, harness), harness)
    except _RubricRefused as refusal:
        return Malformed(str(refusal))


class _RubricRefused(Exception):
    """A rubric breaks a rule; the message is a few fixed words, safe to show to the policy."""


def _read_lines(content: str, harness: Harness) -> list[tuple[str, float | None]]:
    """Each line as a dimension and its weight (None without a weight)."""
    rules, lines = harness.dimensions, []
    for line in filter(str.strip, content.splitlines()):
        found = _LINE.fullmatch(line)
        name = found[1].strip() if found else ""
        if found is None or harness.find(name) is None:
            raise _RubricRefused("a line names no dimension of the list")
        written = None if found[2] is None else _WEIGHT.fullmatch(found[2])
        if found[2] is not None and (written is None or not written[1]):
            raise _RubricRefused(f"a weight must be a number from {rules.weight_min:g} to {rules.weight_max:g}")
        lines.append((name, float(written[1]) if written else None))
    return lines


def _check(lines: Sequence[tuple[str, float | None]], harness: Harness) -> Rubric:
    rules = harness.dimensions
    if len({name for name, _ in lines}) < len(lines):
        raise _RubricRefused("a dimension stands in the rubric twice")
    if len(lines) != rules.k:
        raise _RubricRefused(f"the rubric must have exactly {rules.k} dimensions")
    if [name for name, weight in lines if weight is None] != [rules.must_include]:
        raise _RubricRefused(f"{rules.must_include} must stand without a weight, and no other dimension may")
    weights = tuple(Weight(name, weight) for name, weight in lines if weight is not None)
    if not all(rules.weight_min <= item.weight <= rules.weight_max for item in weights):
        raise _RubricRefused(f"a weight must be a number from {rules.weight_min:g} to {rules.weight_max:g}")
    return Rubric(rules.must_include, weights)


def default_rubric(harness: Harness) -> Rubric:
    """The rubric used without a valid choice: the first dimensions of the pool at the middle weight.

    default_rubric(Harness(pool=(factuality, citation, coverage), dimensions=DimensionRules(k=2)))
    -> Rubric("factuality", (Weight("citation", 0.3),))
    """
    rules = harness.dimensions
    others = [item.name for item in harness.pool if item.name != rules.must_include][: rules.k - 1]
    middle = (rules.weight_min + rules.weight_max) / 2
    return Rubric(rules.must_include, tuple(Weight(name, middle) for name in others))


RUBRIC: RoleDialect[Protocol] = RoleDialect(RubricChooser)
