"""Detection of training collapse: alarms from the metrics of the steps.

    watch = Watch(HealthSettings(patience=3))
    watch.reset()                               # a phase begins
    for alarm in watch.check(metrics, "solver"):
        ...                                     # Alarm(kind="entropy", message="the solver's entropy is ...")

The reaction to an alarm (warn, stop, roll back) is decided elsewhere.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from quaere.dialects.notes import find_notes
from quaere.errors import TrainingStopped
from quaere.runs import Run
from quaere.training.settings import HealthSettings

# The actor's episode metrics are named `reports/...`, and its learner settings are under `solver`.
_EPISODES = {"actor": "reports"}
_SECTIONS = {"actor": "solver"}
_CUT_OFF = "if turns are cut off, raise {section}.limits.turn_tokens, otherwise lower {section}.learner.learning_rate"


class Alarm(Struct, frozen=True):
    """A condition that has held for too long; `message` tells the user what to change.

    Alarm(kind="entropy", message="entropy: 0.012 nats a token, 3 steps in a row below health.min_entropy=0.02; ...")
    """

    kind: str
    message: str


class Watch:
    """Counts, per condition, for how many consecutive steps it has held.

    A condition raises an alarm at its `patience`-th consecutive step, and again only after a healthy step or a `reset`,
    so that a lasting problem is reported once. A missing or NaN metric leaves the count unchanged. The counts are the
    whole state, so a restored watch continues as if never interrupted.
    """

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._counts: dict[str, int] = {}

    def check(self, metrics: Mapping[str, float], role: str) -> list[Alarm]:
        """Alarms of one training step of a role.

        watch.check({"policy/entropy": 0.9, "mismatch/mean": 0.01}, "proposer") -> []
        """
        alarms: list[Alarm] = []
        patience = self._settings.patience
        names = {"role": role, "episodes": _EPISODES.get(role, role), "section": _SECTIONS.get(role, role)}
        for condition in _watched(self._settings, role):
            value = metrics.get(condition.metric.format(**names), math.nan)
            limit = getattr(self._settings, condition.setting)
            if math.isnan(value):
                continue
            count = self._counts.get(condition.kind, 0) + 1 if condition.holds(value, limit, metrics) else 0
            self._counts[condition.kind] = count
            if count == patience:
                alarms.append(Alarm(condition.kind, condition.describe(value, limit, patience, names)))
        return alarms

    @property
    def suspect(self) -> bool:
        """True if any condition currently holds: a checkpoint written now is not one to roll back to."""
        return any(self._counts.values())

    def reset(self) -> None:
        """Clear all counts, at the start of a phase."""
        self._counts = {}

    def state(self) -> dict[str, int]:
        """The counts by condition, to be saved in a checkpoint and passed to `restore`.

        watch.state() -> {"entropy": 2}
        """
        return {kind: count for kind, count in self._counts.items() if count}

    def restore(self, state: Mapping[str, int]) -> None:
        """Continue from a saved state; conditions that have been switched off since are dropped."""
        kinds = {condition.kind for condition in _watched(self._settings, "")}
        self._counts = {kind: count for kind, count in state.items() if kind in kinds}


def check_curriculum(num_new: int, iteration: int, settings: HealthSettings) -> list[Alarm]:
    """The alarm of an iteration whose curriculum has too few new questions; [] if there are enough.

    `patience` does not apply, because an iteration has only one curriculum.

        check_curriculum(0, 1, HealthSettings()) -> [Alarm(kind="curriculum", message="curriculum: iteration 2 ...")]
    """
    if num_new >= settings.min_new_questions:
        return []
    message = (
        f"curriculum: iteration {iteration + 1} has {num_new} new questions that the solver may solve sometimes, below "
        f"health.min_new_questions={settings.min_new_questions}; its solver has nothing new to learn from; raise "
        "generation.candidates, set proposer.carry_on=true for other documents in every iteration, or stop here"
    )
    return [Alarm("curriculum", message)]


def check_repeats(share: float, iteration: int, settings: HealthSettings) -> list[Alarm]:
    """The alarm of an iteration whose questions nearly repeat each other or earlier ones; [] if few do.

    check_repeats(0.6, 1, HealthSettings()) -> [Alarm(kind="repeats", message="repeats: 60% of the questions ...")]
    """
    if not settings.max_repeats or share <= settings.max_repeats:
        return []
    message = (
        f"repeats: {share:.0%} of the questions of iteration {iteration + 1} nearly repeat another or an earlier one, "
        f"above health.max_repeats={settings.max_repeats:g}; the proposer asks the same again; lower "
        "proposer.learner.learning_rate, or give it other documents"
    )
    return [Alarm("repeats", message)]


class _Condition(Struct, frozen=True):
    """A metric on the wrong side of a setting of `HealthSettings`; a setting of 0 or false switches it off.

    A condition with a `role` replaces the general one of its kind for that role. In the texts, `{role}` is the role,
    `{episodes}` the prefix of its episode metrics, `{section}` the config section of its learner and `{value}` the
    metric's value. `noise` names a metric that says how far below the limit the value may be by chance.
    """

    kind: str
    setting: str
    side: Literal["below", "at zero", "above"]
    metric: str
    seen: str
    meaning: str
    role: str = ""
    noise: str = ""

    def holds(self, value: float, limit: float, metrics: Mapping[str, float]) -> bool:
        if self.side == "below":
            return value < limit - metrics.get(self.noise, 0.0)
        return value > limit if self.side == "above" else value == 0

    def describe(self, value: float, limit: float, num_steps: int, names: Mapping[str, str]) -> str:
        """The alarm's message: value, limit, usual meaning and what to change."""
        row = f"{num_steps} steps in a row" if num_steps > 1 else "1 step"
        name = f"health.{self.setting}"
        crossed = f"({name})" if self.side == "at zero" else f"{self.side} {name}={limit:g}"
        seen, meaning = self.seen.format(value=value, **names), self.meaning.format(**names)
        return f"{self.kind}: {seen}, {row} {crossed}; {meaning}"


_CONDITIONS = (
    _Condition(
        "entropy",
        "min_entropy",
        "below",
        "policy/entropy",
        "{value:.3g} nats a token",
        "the {role} writes nearly the same every time and explores nothing; lower {section}.learner.learning_rate or "
        "raise {section}.learner.kl_beta",
    ),
    _Condition(
        "length",
        "min_tokens",
        "below",
        "{episodes}/model_tokens",
        "{value:.3g} model tokens an episode",
        "the {role} has all but stopped writing, as happens if every attempt has a low reward; look at its episodes, "
        "then lower {section}.learner.learning_rate",
    ),
    _Condition(
        "validity",
        "min_valid",
        "below",
        "{episodes}/call_validity",
        "{value:.1%} of the {role}'s turns can be read",
        "the form of calls and answers is lost; " + _CUT_OFF,
    ),
    _Condition(
        "validity",
        "min_valid",
        "below",
        "proposer/valid",
        "{value:.1%} of the questions are valid",
        "hardly any question earns anything; " + _CUT_OFF,
        role="proposer",
    ),
    *(
        _Condition(
            "advantages",
            "zero_advantages",
            "at zero",
            "advantage/nonzero",
            "none of the {role}'s episodes has an advantage",
            f"all rewards that are compared are equal, so there is nothing to learn; {remedy}",
            role=role,
        )
        for role, remedy in (
            (
                "",
                "raise solver.attempts, or leave out questions that are never or always solved (where a proposer "
                "writes them, generation.attempts=5 does)",
            ),
            ("proposer", "raise proposer.attempts or proposer.batch, so that rewards can differ"),
            ("actor", "raise solver.attempts, or warm the model up if assessments cannot be read"),
        )
    ),
    _Condition(
        "abstention",
        "max_abstained",
        "above",
        "abstention/answerable",
        "the {role} abstains from {value:.0%} of the questions that have an answer",
        "abstaining earns more than answering; lower solver.abstention.needless or solver.abstention.hidden_share",
    ),
    _Condition(
        "guessing",
        "min_refused",
        "below",
        "abstention/unanswerable",
        "the {role} abstains from {value:.0%} of the questions that have no answer",
        "it cannot learn what it never does; teach it first (`quaere warmup --abstention 0.2`), or raise "
        "solver.abstention.hidden_share",
    ),
    _Condition(
        "mismatch",
        "max_mismatch",
        "above",
        "mismatch/mean",
        "{value:.3g} nats a token between sampler and learner",
        "the policy that writes is not the one that is trained; set engine.dtype=float32 and sampling.temperature=1",
    ),
    _Condition(
        "update",
        "min_update_seen",
        "below",
        "sampler/update_seen",
        "{value:.1%} of the learner's change reaches the sampler",
        "the sampler's precision loses what is learned; set engine.dtype=bfloat16 or float32",
        noise="sampler/update_noise",
    ),
    _Condition(
        "searches",
        "min_searches_kept",
        "below",
        "solver/searches_kept",
        "{value:.0%} of the solver's searches in the phase's first steps are left for questions that need as many",
        "it stops searching too early, and unlearns questions that need more; compare solver/searches_n2 with "
        "answer/exact_match_n2, train on more questions that need several searches, or lower "
        "solver.learner.learning_rate",
    ),
    _Condition(
        "saturation",
        "max_ceiling",
        "above",
        "scores/ceiling",
        "{value:.1%} of the reports are at the top of the scale",
        "the evaluator no longer tells good reports from better ones; stop here, or set harness.kind=rules",
    ),
    _Condition(
        "spread",
        "min_spread",
        "below",
        "scores/spread",
        "scores of one question's reports differ by {value:.3g}",
        "the evaluator gives all reports the same; raise evaluator.passes, or stop here",
    ),
    _Condition(
        "citation hack",
        "max_hack",
        "above",
        "gauge/citation_hack",
        "rewards or agreement rose by {value:.3g} while citations fell by as much",
        "the evaluator is being played, or plays; look at its rubrics, then go back to an earlier checkpoint or set "
        "harness.dimensions.must_include=citation",
    ),
)


def _watched(settings: HealthSettings, role: str) -> list[_Condition]:
    """The conditions checked while this role is trained, one of each kind, without those that are switched off."""
    # Conditions of one role come after the general one of their kind.
    chosen = {one.kind: one for one in _CONDITIONS if one.role in ("", role)}
    return [one for one in chosen.values() if getattr(settings, one.setting) > 0]


# -------------------------------------------------------------------------------------------- runs that learned nothing


FIRST_STEPS = 3
"""Number of steps without a usable episode after which a note is shown; one or two batches may be bad luck."""

# By phase: the metric for the share of episodes that followed the protocol, and what such an episode did.
FOLLOWED = {
    "proposer": ("proposer/valid", "wrote a valid question"),
    "solver": ("solver/answered", "gave an answer"),
    "reports": ("report/finished", "finished a report"),
}
_LEARNED = "gradient/norm"
_AFTER_WARMUP = "a longer warm-up (--episodes, --epochs), a larger model or longer limits may help"


def describe_useless(phase: str, shares: Sequence[float], recipe: str, model: str) -> str:
    """A note for the user if no episode of a phase's first steps followed the protocol; "" if one did.

    describe_useless("proposer", [0.0, 0.0, 0.0], "drzero", "M")
    -> "no episode of the first 3 steps wrote a valid question: M may need `quaere warmup drzero --model M --out DIR`"

    For a model that was warmed up, the note suggests other remedies than a warm-up.
    """
    if not shares or any(shares):
        return ""
    useless = f"no episode of the first {len(shares)} steps {FOLLOWED[phase][1]}"
    if _is_taught(model):
        return f"{useless}, though {model} was warmed up: {_AFTER_WARMUP}"
    return f"{useless}: {model} may need `{_warmup_hint(recipe, model)}`"


def _is_taught(model: str) -> bool:
    """True if a warm-up taught the model any dialect; `evolve` has refused models that were taught only other ones."""
    return bool(find_notes(model).taught)


def _warmup_hint(recipe: str, model: str) -> str:
    if recipe == "r1":  # no warm-up teaches to answer from memory
        return f"quaere evolve sft --set solver.dialect=cot --model {model} ..."
    dialect = "score" if recipe.startswith("report-") else recipe
    return f"quaere warmup {dialect} --model {model} --out DIR"


def check_learned(store: Run, recipe: str, model: str, *, writes_questions: bool) -> None:
    """Raise TrainingStopped if a finished run changed no weight and, if it writes questions, kept none.

    A run on given questions whose attempts all had equal rewards is accepted if its model follows the protocol, and a
    run without steps (`epochs=0`) as it is.
    """
    if not store.last_step():
        return
    if any(metric.value > 0 for metric in store.metrics(_LEARNED)):
        return
    if writes_questions and store.curriculum():
        return
    shares = [metric.value for name, _ in FOLLOWED.values() for metric in store.metrics(name)]
    has_followed = any(share > 0 for share in shares) or any(
        candidate.reason not in ("invalid", "unfinished") for candidate in store.candidates()
    )
    why = "no question was kept" if writes_questions else "no episode could be learned from"
    if not has_followed and _is_taught(model):
        raise TrainingStopped(
            f"nothing was learned: {why}, because {model} never followed the protocol, though it was warmed up; "
            f"{_AFTER_WARMUP}",
            hint=f"quaere runs show {shlex.quote(str(store.path))} --episodes",
        )
    if not has_followed:
        raise TrainingStopped(
            f"nothing was learned: {why}, because {model} never followed the protocol; it needs a warm-up first",
            hint=f"{_warmup_hint(recipe, model)}, then quaere evolve {recipe} --model DIR ...",
        )
    if writes_questions:
        raise TrainingStopped(
            f"nothing was learned: {why}", hint=f"quaere runs show {shlex.quote(str(store.path))} --candidates"
        )
