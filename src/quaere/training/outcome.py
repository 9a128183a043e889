"""Detection of runs that learned nothing, usually because the model cannot follow the protocol.

check_learned(store, "drzero", "smollm2-135m", writes_questions=True)
"""

from __future__ import annotations

from collections.abc import Mapping

from quaere.dialects.notes import find_notes
from quaere.errors import TrainingStopped
from quaere.runs import Run

FIRST_STEPS = 3
"""Number of steps without a usable episode after which a note is shown; one or two batches may be bad luck."""

# By phase: the metric for the share of episodes that followed the protocol, and what such an episode did.
_FOLLOWED = {
    "proposer": ("proposer/valid", "wrote a valid question"),
    "solver": ("solver/answered", "gave an answer"),
    "reports": ("report/finished", "finished a report"),
}
_LEARNED = "gradient/norm"
_AFTER_WARMUP = "a longer warm-up (--episodes, --epochs), a larger model or longer limits may help"


def describe_useless(phase: str, values: Mapping[str, list[float]], number: int, recipe: str, model: str) -> str:
    """The note after step `number` of a run's first phase if no episode was usable so far; "" otherwise.

    describe_useless("proposer", {"proposer/valid": [0.0, 0.0, 0.0]}, 3, "drzero", "M")
    -> "no episode of the first 3 steps wrote a valid question: M may need `quaere warmup drzero --model M --out DIR`"

    A model that was warmed up is not told to be warmed up.
    """
    if number != FIRST_STEPS or phase not in _FOLLOWED:
        return ""
    name, what = _FOLLOWED[phase]
    shares = values.get(name, [])
    if not shares or any(shares):
        return ""
    useless = f"no episode of the first {number} steps {what}"
    if is_taught(model):
        return f"{useless}, though {model} was warmed up: {_AFTER_WARMUP}"
    return f"{useless}: {model} may need `{warmup_hint(recipe, model)}`"


def followed_metric(phase: str) -> str:
    """Metric of the share of a phase's episodes that followed the protocol; "" if there is none."""
    return _FOLLOWED[phase][0] if phase in _FOLLOWED else ""


def is_taught(model: str) -> bool:
    """True if a warm-up taught the model a dialect; `evolve` refuses a model that was taught others than the run's."""
    return bool(find_notes(model).taught)


def warmup_hint(recipe: str, model: str) -> str:
    """The command of the warm-up that teaches a model a recipe's protocol."""
    dialect = "score" if recipe.startswith("report-") else recipe
    return f"quaere warmup {dialect} --model {model} --out DIR"


def check_learned(store: Run, recipe: str, model: str, *, writes_questions: bool) -> None:
    """Raise TrainingStopped if a finished run changed no weight and, if it writes questions, kept none.

    A run on given questions whose attempts all had equal rewards is accepted if its model follows the protocol.
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
    if not has_followed and is_taught(model):
        raise TrainingStopped(
            f"nothing was learned: {why}, because {model} never followed the protocol, though it was warmed up; "
            f"{_AFTER_WARMUP}",
            hint=f"quaere runs show {store.path} --episodes",
        )
    if not has_followed:
        raise TrainingStopped(
            f"nothing was learned: {why}, because {model} never followed the protocol; it needs a warm-up first",
            hint=f"{warmup_hint(recipe, model)}, then quaere evolve {recipe} --model DIR ...",
        )
    if writes_questions:
        raise TrainingStopped(f"nothing was learned: {why}", hint=f"quaere runs show {store.path} --candidates")
