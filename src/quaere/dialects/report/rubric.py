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

import math
import re
from collections.abc import Sequence

from quaere.chat.markup import find_blocks, first_fault, has_unclosed
from quaere.chat.protocol import Acted, Message, Part, PromptStyle, Protocol, Quoted
from quaere.dialects.report.evaluator_prompts import pool_parts, rubric_form, rubric_system
from quaere.dialects.roles import PlainProtocol, RoleDialect
from quaere.records import Action, Harness, Malformed, Rubric, RubricTask, Task, Turn, Weight

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

    def reply(self, acted: Acted, earlier: Sequence[Turn] = (), *, final: bool = False) -> Message:
        """The error in the rubric and how to write one, used where a second turn is allowed."""
        reason = acted.action.reason if isinstance(acted.action, Malformed) else "that was not expected here"
        form = rubric_form(self.harness.dimensions)
        return Message("user", (f"That rubric could not be used: {reason}. Write {form}.",))


def read_rubric(text: str, harness: Harness) -> Rubric | Malformed:
    """The rubric in a turn; `Malformed` if there is none or if it breaks a rule of the harness.

    The rules: exactly `k` different dimensions of the pool, all of `must_include` among them; only the primary one has
    no weight; the weights of the others lie within their bounds. A line may begin with a dash.

        read_rubric("<rubric>\\nfactuality\\ncoverage: 0.4\\n</rubric>", harness)
        -> Rubric("factuality", (Weight("coverage", 0.4),))
        read_rubric("<rubric>\\nfactuality\\ncoverage: 7\\n</rubric>", harness)
        -> Malformed("a weight must be a number from 0.1 to 0.5")
    """
    blocks = [block for block in find_blocks(text, ("think", "rubric")) if block.name == "rubric"]
    if not blocks:
        unclosed = has_unclosed(text, "rubric")
        return Malformed("the rubric block is not closed" if unclosed else "there is no rubric")
    content, rules = blocks[0].content, harness.dimensions
    if len(content) > MAX_RUBRIC_CHARS:
        return Malformed("the rubric is too long")
    lines = [_read_line(line) for line in filter(str.strip, content.splitlines())]
    weights = tuple(Weight(name, weight) for name, weight in lines if weight is not None)
    are_fit = all(rules.weight_min <= item.weight <= rules.weight_max for item in weights)
    bounds = f"a weight must be a number from {rules.weight_min:g} to {rules.weight_max:g}"
    alone = f"{rules.primary} must stand without a weight, and no other dimension may"
    lacking = [name for name in rules.required if name not in dict(lines)]
    faults: list[tuple[bool, str]] = []
    for name, weight in lines:
        is_unread = weight is not None and math.isnan(weight)
        faults += [(harness.find(name) is None, "a line names no dimension of the list"), (is_unread, bounds)]
    fault = first_fault(
        *faults,
        (len({name for name, _ in lines}) < len(lines), "a dimension stands in the rubric twice"),
        (len(lines) != rules.k, f"the rubric must have exactly {rules.k} dimensions"),
        ([name for name, weight in lines if weight is None] != [rules.primary], alone),
        (lacking, f"the rubric must have {', '.join(lacking)}"),
        (not are_fit, bounds),
    )
    return Malformed(fault) if fault else Rubric(rules.primary, weights)


def _read_line(line: str) -> tuple[str, float | None]:
    """The name ("" if there is none) and the weight of a line: None without one, NaN if it is not a number."""
    found = _LINE.fullmatch(line)
    if found is None or found[2] is None:
        return found[1].strip() if found else "", None
    written = _WEIGHT.fullmatch(found[2])
    return found[1].strip(), float(written[1]) if written and written[1] else math.nan


def default_rubric(harness: Harness) -> Rubric:
    """The rubric used if no valid one was chosen: the required dimensions, then the pool's first, at the middle weight.

    default_rubric(Harness(pool=(factuality, citation, coverage), dimensions=DimensionRules(k=2)))
    -> Rubric("factuality", (Weight("citation", 0.3),))
    """
    rules = harness.dimensions
    names = dict.fromkeys([*rules.required, *(item.name for item in harness.pool)])
    others = [name for name in names if name != rules.primary][: rules.k - 1]
    middle = (rules.weight_min + rules.weight_max) / 2
    return Rubric(rules.primary, tuple(Weight(name, middle) for name in others))


RUBRIC: RoleDialect[Protocol] = RoleDialect(RubricChooser)
