"""The meta-harness revises the evaluator's rules: by fixed rules, or by asking a model. Neither is ever trained.

    regenerated = await RulesHarness().regenerate(statistics, previous, default)
    regenerated.harness, regenerated.fault, regenerated.why

Every new harness keeps the bounds of `harness.py`. On any fault the previous harness stays in force, and the fault is
recorded with it.

The fixed rules, with the numbers of `RuleSettings`. All rules whose condition holds act together, in this order:

    rule         when                                                  what it does
    rubrics      share_invalid_rubrics > max_invalid                   k - 1
    assessments  share_invalid_assessments > max_invalid               k - 1, min tool calls - 1
    unverified   share_under_verified > max_under_verified             min tool calls - 1
    citations    citation validity fell by more than citation_fall,    cross-check on; the citation dimension is put
                 and the reward rose                                   back into the pool and becomes the primary one
    saturated    something was scored, share_at_ceiling >              k + 1, min tool calls + 1, verification and gap
                 max_at_ceiling or score_spread < min_spread,          analysis on
                 and none of the first three rules fits
    entropy      it fell by more than a share of entropy_fall          weights range wider by widening on both sides;
                                                                       dropped dimensions of the default pool come back
    calm         no other rule fits                                    k and min tool calls one step towards the
                                                                       default, the weights as in the default

k stays from 2 to `max_k` and the size of the pool; min tool calls from 1 (0 where no search is required) to the limit.
An evaluator that cannot follow the rules gets easier ones, not stricter ones: a report verified with too few searches
already earns 0, and requiring more searches would only add such reports. The rules' advice to the evaluator is in the
notes.
"""

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from quaere.chat.protocol import Message, Quoted, as_chat
from quaere.policies.sampler import ChatSampler, SamplingParams
from quaere.recipes.score.harness import (
    LEAST_K,
    HarnessLimits,
    Statistics,
    encode_harness,
    find_fault,
    follow,
    one_line,
    parse_harness,
)
from quaere.records import Harness
from quaere.setting_types import Fraction, NonNegativeFloat

# ------------------------------------------------------------------------------------------------------ the interface


class Regenerated(Struct, frozen=True):
    """The harness from now on; with a `fault`, it is the previous one. `why` gives the reason in a few words.

    Regenerated(harness=Harness(version=3, ...), why="saturated")
    """

    harness: Harness
    fault: str = ""
    why: str = ""


class MetaHarness:
    """Makes the next harness from the statistics of the training; this one never changes it (an ablation)."""

    name = "none"

    async def regenerate(self, statistics: Statistics, previous: Harness, default: Harness) -> Regenerated:
        """The next harness, or the previous one and the fault; never raises."""
        return Regenerated(previous)

    async def stop(self) -> None:
        """Close connections."""


# -------------------------------------------------------------------------------------------------------- fixed rules


class RuleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of the fixed rules.

        RuleSettings(max_invalid=0.25, max_at_ceiling=0.5, min_spread=0.03)

    Attributes:
        max_invalid: Share of unreadable rubrics or assessments above which the rules become easier. [Quaere]
        max_under_verified: Share of reports verified with too few searches above which fewer searches are
            required. [Quaere]
        max_at_ceiling: Share of scores at the top of the scale above which the rules become stricter. [Quaere]
        min_spread: Spread of a question's scores below which the rules become stricter. [Quaere]
        citation_fall: Fall of citation validity, while the reward rises, at which citations are guarded.
            [Quaere]
        citation_dimension: The dimension that then becomes the primary one. [Quaere]
        entropy_fall: Fall of the entropy, as a share of it, at which the range of weights is widened. [Quaere]
        widening: Amount by which the range of weights is widened on both sides. [Quaere]
        max_k: Most dimensions of a rubric that the rules ask for. [Quaere]
    """

    max_invalid: Fraction = 0.25
    max_under_verified: Fraction = 0.5
    max_at_ceiling: Fraction = 0.5
    min_spread: NonNegativeFloat = 0.03
    citation_fall: NonNegativeFloat = 0.05
    citation_dimension: str = "citation"
    entropy_fall: NonNegativeFloat = 0.2
    widening: NonNegativeFloat = 0.05
    max_k: Annotated[int, Meta(ge=LEAST_K)] = 6


_NOTES = {
    "rubrics": "Rubrics could often not be read: keep to the form.",
    "assessments": "Assessments could often not be read: keep to the form, and score every report on every dimension.",
    "unverified": "Reports were scored without having been looked into: search for each of them.",
    "citations": "Rewards rose while citations got worse: check that sources say what they are cited for.",
    "saturated": "Scores lie close together: look deeper, and use the whole scale.",
    "entropy": "Reports grow alike: choose dimensions and weights more freely.",
}


class RulesHarness(MetaHarness):
    """A meta-harness with fixed rules, without network or randomness: equal statistics give equal harnesses."""

    name = "rules"

    def __init__(
        self,
        settings: RuleSettings = RuleSettings(),  # noqa: B008 (it is frozen)
        limits: HarnessLimits = HarnessLimits(),  # noqa: B008
    ) -> None:
        self.settings, self.limits = settings, limits

    async def regenerate(self, statistics: Statistics, previous: Harness, default: Harness) -> Regenerated:
        """The previous harness, changed by all rules whose condition holds."""
        rules, harness = self.find_rules(statistics), previous
        for rule in rules or ["calm"]:
            harness = self._apply(rule, harness, default)
        notes = " ".join(_NOTES[rule] for rule in rules)[: self.limits.max_notes_chars]
        harness = structs.replace(harness, notes=notes or default.notes)
        if fault := find_fault(harness, self.limits):
            return Regenerated(previous, fault)
        return Regenerated(follow(previous, harness), why=", ".join(rules) or "calm")

    def find_rules(self, statistics: Statistics) -> list[str]:
        """The names of the rules whose condition holds, in the order in which they act.

        RulesHarness().find_rules(Statistics(share_invalid_rubrics=0.5)) -> ["rubrics"]
        """
        settings = self.settings
        entropy_before = (statistics.entropy or 0.0) - statistics.entropy_change
        overloaded = {
            "rubrics": statistics.share_invalid_rubrics > settings.max_invalid,
            "assessments": statistics.share_invalid_assessments > settings.max_invalid,
            "unverified": statistics.share_under_verified > settings.max_under_verified,
        }
        spread = statistics.score_spread  # None if no question had two scored reports: no sign of saturation
        is_alike = spread is not None and spread < settings.min_spread
        is_flat = statistics.share_at_ceiling > settings.max_at_ceiling or is_alike
        fits = overloaded | {
            "citations": statistics.citation_change < -settings.citation_fall and statistics.reward_change > 0,
            "saturated": statistics.num_scored > 0 and is_flat and not any(overloaded.values()),
            "entropy": entropy_before > 0 and -statistics.entropy_change > settings.entropy_fall * entropy_before,
        }
        return [rule for rule, does in fits.items() if does]

    def _apply(self, rule: str, harness: Harness, default: Harness) -> Harness:
        match rule:
            case "rubrics":
                return self._demand(harness, k=-1)
            case "assessments":
                return self._demand(harness, k=-1, calls=-1)
            case "unverified":
                return self._demand(harness, calls=-1)
            case "citations":
                return self._guard_citations(harness, default)
            case "saturated":
                process = structs.replace(harness.process, require_verification=True, require_gap_analysis=True)
                return self._demand(structs.replace(harness, process=process), k=1, calls=1)
            case "entropy":
                return self._widen(harness, default)
            case _:
                return self._calm(harness, default)

    def _demand(self, harness: Harness, *, k: int = 0, calls: int = 0) -> Harness:
        rules, process = harness.dimensions, harness.process
        wanted_k = _move(rules.k, k, max(LEAST_K, len(rules.required)), min(self.settings.max_k, len(harness.pool)))
        wanted = _move(process.min_tool_calls, calls, int(process.require_search), self.limits.max_tool_calls)
        return structs.replace(
            harness,
            dimensions=structs.replace(rules, k=wanted_k),
            process=structs.replace(process, min_tool_calls=wanted),
        )

    def _guard_citations(self, harness: Harness, default: Harness) -> Harness:
        """The harness with cross-check on and citations as the primary dimension."""
        name, lost = self.settings.citation_dimension, default.find(self.settings.citation_dimension)
        harness = structs.replace(harness, process=structs.replace(harness.process, citation_cross_check=True))
        if harness.find(name) is None and lost is not None and len(harness.pool) < self.limits.max_pool:
            harness = structs.replace(harness, pool=(*harness.pool, lost))
        if harness.find(name) is None:
            return harness  # neither pool has the dimension
        rules = harness.dimensions
        if isinstance(rules.must_include, str):
            return structs.replace(harness, dimensions=structs.replace(rules, must_include=name))
        required = (name, *(one for one in rules.required if one != name))[: rules.k]  # the others stay required
        return structs.replace(harness, dimensions=structs.replace(rules, must_include=required))

    def _widen(self, harness: Harness, default: Harness) -> Harness:
        rules, by = harness.dimensions, self.settings.widening
        lost = tuple(item for item in default.pool if harness.find(item.name) is None)
        # Rounded, because 0.1 + 0.05 would be shown with sixteen digits in prompts.
        low, high = round(max(0.0, rules.weight_min - by), 6), round(min(1.0, rules.weight_max + by), 6)
        pool = (harness.pool + lost)[: max(len(harness.pool), self.limits.max_pool)]
        return structs.replace(harness, pool=pool, dimensions=structs.replace(rules, weight_min=low, weight_max=high))

    def _calm(self, harness: Harness, default: Harness) -> Harness:
        """The harness one step closer to the default. The guard of citations stays: it was needed once."""
        rules, usual = harness.dimensions, default.dimensions
        harness = self._demand(
            harness,
            k=_sign(min(usual.k, len(harness.pool)) - rules.k),
            calls=_sign(default.process.min_tool_calls - harness.process.min_tool_calls),
        )
        rules = structs.replace(harness.dimensions, weight_min=usual.weight_min, weight_max=usual.weight_max)
        return structs.replace(harness, dimensions=rules)


def _move(value: int, by: int, least: int, most: int) -> int:
    """`value + by`, if that is within the bounds or closer to them; else `value`.

    `_move(7, 1, 2, 6)` is 7, and `_move(7, -1, 2, 6)` is 6.
    """
    moved = value + by
    return moved if (by < 0 and moved >= least) or (by > 0 and moved <= most) else value


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


# --------------------------------------------------------------------------------------------------- asking a model

_SYSTEM = """\
You set the rules for the training of a model that plays two roles: it writes research reports from a collection of \
documents, and it judges them. Before reports are written, the judge chooses a rubric: the primary dimension \
(must_include) and further ones from the pool, k in all, with weights from weight_min to weight_max. Then it searches \
the documents to verify each report, at least min_number_of_tool_call times, and scores it. A report that was looked \
into less often earns nothing. The writer learns from the scores; the judge learns to choose rubrics under which \
reports on one question come to the same conclusions.

You are given statistics of the last steps, the rules now in force and those the run began with. Change what the \
statistics call for, and little at a time. Scores that lie close together or at the ceiling call for more dimensions \
and more verification; many invalid rubrics or assessments, or many reports that were looked into too little, call for \
fewer. Citations that get worse while rewards rise mean that the judge is being played: make it check them. You may \
change the pool of dimensions; you never choose the judge's dimensions or weights for it. Notes are read by the judge.

Answer with one JSON object and nothing else. It has exactly these keys:
{form}
Bounds: k from 2 to the size of the pool; weights from 0 to 1; min_number_of_tool_call from 0 to {max_tool_calls}; \
must_include is in the pool; names of dimensions are words of small letters; notes of at most {max_notes_chars} \
characters. Under "pool", "drop" lists names and "add" lists objects with "name" and "text"; both may be empty."""


class LlmHarness(MetaHarness):
    """A meta-harness that asks a model behind a `ChatSampler`; the reply is checked like all outside text.

    LlmHarness(OpenAISampler(parse_endpoint("openai:qwen3-32b@http://localhost:8000/v1")))
    """

    name = "llm"

    def __init__(
        self,
        sampler: ChatSampler,
        *,
        limits: HarnessLimits = HarnessLimits(),  # noqa: B008 (it is frozen)
        max_tokens: int = 2048,
        timeout_s: float = 180.0,
        seed: int = 0,
    ) -> None:
        self._sampler, self._limits, self._timeout_s = sampler, limits, timeout_s
        self._params = SamplingParams(max_tokens=max_tokens, temperature=0.0, seed=seed)

    async def regenerate(self, statistics: Statistics, previous: Harness, default: Harness) -> Regenerated:
        """The harness the model proposes, or the previous one if the reply cannot be used."""
        messages = [as_chat(message) for message in self.messages(statistics, previous, default)]
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._sampler.reply(messages, self._params)
        except TimeoutError:
            return Regenerated(previous, f"the model did not answer within {self._timeout_s:g} s")
        except Exception as error:  # any failure of an endpoint: training must go on, and the fault is recorded
            return Regenerated(previous, f"the model did not answer: {one_line(str(error))}")
        if reply.stop_reason == "length":
            return Regenerated(previous, "the model's answer was cut off")
        made = parse_harness(_find_object(reply.text), previous, self._limits)
        return Regenerated(previous, made) if isinstance(made, str) else Regenerated(made, why=self._sampler.name)

    async def stop(self) -> None:
        """Close the connections."""
        await self._sampler.stop()

    def messages(self, statistics: Statistics, previous: Harness, default: Harness) -> list[Message]:
        """The prompt for the model."""
        system = _SYSTEM.format(
            form=encode_harness(structs.replace(default, notes="...")), **structs.asdict(self._limits)
        )
        # Parts of these texts were written by a model, so they are quoted.
        given = (
            ("Statistics:", msgspec.json.encode(statistics).decode()),
            ("Rules now in force:", encode_harness(previous)),
            ("Their pool:", msgspec.json.encode(previous.pool).decode()),
            ("Rules the run began with:", encode_harness(default)),
        )
        parts = [part for heading, text in given for part in (f"{heading}\n", Quoted(text), "\n\n")]
        return [Message("system", (system,)), Message("user", tuple(parts))]


def _find_object(text: str) -> str:
    """The text from the first brace to the last, since models often put a code fence around JSON; else all of it.

    _find_object('```json\\n{"k": 4}\\n```') -> '{"k": 4}'
    """
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text
