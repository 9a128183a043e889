"""Has a run learned anything at all? A model that cannot follow the protocol goes through every step for nothing.

check_learned(store, "drzero", "smollm2-135m", writes_questions=True)
"""

from __future__ import annotations

from collections.abc import Mapping

from quaere.errors import TrainingStopped
from quaere.runs import Run

FIRST_STEPS = 3
"""After so many steps of a run without one usable episode it is said; a batch or two may be bad luck."""

# By phase: the share of episodes that kept to the protocol, and what such an episode is.
_FOLLOWED = {
    "proposer": ("proposer/valid", "wrote a valid question"),
    "solver": ("solver/answered", "gave an answer"),
    "reports": ("report/finished", "finished a report"),
}
_LEARNED = "gradient/norm"


def describe_useless(phase: str, values: Mapping[str, list[float]], number: int, recipe: str, model: str) -> str:
    """What to say after step `number` of a run's first phase if no episode could be used so far; "" if one could.

    describe_useless("proposer", {"proposer/valid": [0.0, 0.0, 0.0]}, 3, "drzero", "M")
    -> "no episode of the first 3 steps wrote a valid question: M may need `quaere warmup drzero --model M --out DIR`"
    """
    if number != FIRST_STEPS or phase not in _FOLLOWED:
        return ""
    name, what = _FOLLOWED[phase]
    shares = values.get(name, [])
    if not shares or any(shares):
        return ""
    return f"no episode of the first {number} steps {what}: {model} may need `{warmup_hint(recipe, model)}`"


def followed_metric(phase: str) -> str:
    """The metric that says what share of a phase's episodes kept to the protocol; "" if there is none."""
    return _FOLLOWED[phase][0] if phase in _FOLLOWED else ""


def warmup_hint(recipe: str, model: str) -> str:
    """The command that teaches a model the protocol of a recipe."""
    dialect = "score" if recipe.startswith("report-") else recipe
    return f"quaere warmup {dialect} --model {model} --out DIR"


def check_learned(store: Run, recipe: str, model: str, *, writes_questions: bool) -> None:
    """Refuse to call a run done that has changed no weight, and kept no question if it was to write some.

    A run whose attempts were all paid alike has learned nothing either, but its model can do what it is asked.
    """
    if any(metric.value > 0 for metric in store.metrics(_LEARNED)):
        return
    if writes_questions and store.curriculum():
        return
    shares = [metric.value for name, _ in _FOLLOWED.values() for metric in store.metrics(name)]
    has_followed = any(share > 0 for share in shares) or any(
        candidate.reason not in ("invalid", "unfinished") for candidate in store.candidates()
    )
    why = "no question was kept" if writes_questions else "no episode could be learned from"
    if not has_followed:
        raise TrainingStopped(
            f"nothing was learned: {why}, since {model} never kept to the protocol; it has to be taught first",
            hint=f"{warmup_hint(recipe, model)}, then quaere evolve {recipe} --model DIR ...",
        )
    if writes_questions:
        raise TrainingStopped(f"nothing was learned: {why}", hint=f"quaere runs show {store.path} --candidates")
