"""Episodes by question: which attempts a filter selects, and a summary of each group of attempts.

run.groups(EpisodeFilter(phase="solver", end="turn_limit")) ->
[EpisodeGroup(task_id="i0g-000003", question="Who built it?", step=5, phase="solver", num_attempts=8, ...)]

A group is all attempts at one question at one step by one protocol: what group-relative advantages compare.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from quaere.records import EndReason


class EpisodeFilter(Struct, frozen=True):
    """A filter for rows of the index: a row must satisfy every condition that is set.

    `text` is searched for in question and answer, ignoring the case of ASCII letters. `searches` are inclusive bounds.

        EpisodeFilter(step=5, phase="solver", end="answered", least_searches=2, text="bridge")
    """

    task_id: str | None = None
    step: int | None = None
    phase: str | None = None
    protocol: str | None = None
    end: EndReason | None = None
    least_searches: int | None = None
    most_searches: int | None = None
    text: str = ""

    def where(self) -> tuple[str, dict[str, Any]]:
        """The condition in SQL, and its values."""
        equal = ("task_id", "step", "phase", "protocol", "end")
        parts = [f"{name} = :{name}" for name in equal if getattr(self, name) is not None]
        if self.least_searches is not None:
            parts.append("num_searches >= :least_searches")
        if self.most_searches is not None:
            parts.append("num_searches <= :most_searches")
        if self.text:
            parts.append("(question LIKE :pattern ESCAPE '\\' OR answer LIKE :pattern ESCAPE '\\')")
        values = {name: getattr(self, name) for name in (*equal, "least_searches", "most_searches")}
        return " AND ".join(["TRUE", *parts]), {**values, "pattern": _pattern(self.text)}


class EpisodeGroup(Struct, frozen=True):
    """The attempts at one question at one step, as far as a filter selects them.

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


def _pattern(text: str) -> str:
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"
