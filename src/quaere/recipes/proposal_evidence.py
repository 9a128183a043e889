"""Evidence of proposals: each span located in the text the proposer was shown, checked by guards, and verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, structs

from quaere.chat.spans import find_evidence, shown_passages
from quaere.chat.tags import find_blocks
from quaere.dialects.roles import solver_reward
from quaere.errors import BadInput
from quaere.policies.sampler import SamplingParams
from quaere.records import Evidence, Passage, Proposal, ProposeTask, Search, Support
from quaere.rewards.guards import GUARDS, PAPER, Triple, count_earlier, guarded, refusals
from quaere.rewards.proposer import BREVITY_TOKENS, BREVITY_WEIGHT, SPAN_WEIGHT, VALUE_WEIGHT, EvidenceCheck
from quaere.rollout.policy import ChatPolicy
from quaere.search.searcher import NoSearcher
from quaere.setting_types import NonNegativeFloat, PositiveInt
from quaere.training.proposals import Proposed
from quaere.training.rollouts import Stage
from quaere.training.step import Step
from quaere.training.verification import (
    Claim,
    VerifierSettings,
    read_supports,
    score_supports,
    verification_jobs,
    verify_claims,
)

CountTokens = Callable[[str], int]


class EvidenceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Evidence: what is asked for, how it is rewarded, and which guards refuse it.

        EvidenceConfig(check="zero_value", value_weight=0.5, brevity_weight=0.1, span_weight=0.3, guards=("verbatim",))

    Attributes:
        cite: Both roles are asked to quote their evidence. [EVE-Agent]
        check: A span that is in no text shown: zero_value: it earns neither value nor brevity; none: it is
            rewarded like any other; invalid: its proposal earns the format reward alone. [EVE-Agent]
        value_weight: Weight of the verifier's value in the proposer's reward: lambda_V. [EVE-Agent, Eq. 16]
        brevity_weight: Weight of the brevity bonus in the proposer's reward: lambda_B. [EVE-Agent, Eq. 16]
        brevity_tokens: Span length at which the brevity bonus is 0: L_max. [EVE-Agent, Eq. 15]
        span_weight: Weight of the quoted span in the solver's reward: lambda_E. [EVE-Agent, Eq. 19]
        gold: Spans that the solver's quotation is compared with: verbatim ones only, or any as it was written,
            also a made-up one (preset paper). [Quaere; EVE-Agent]
        paid: Quotations of the solver that earn the reward of span_weight: written: any; verbatim: only those in a
            text it was shown. [EVE-Agent; Quaere]
        guards: Names of the rules that refuse evidence which proves nothing (`rewards/guards.py`); the paper has
            none. [Quaere]
    """

    cite: bool = True
    check: EvidenceCheck = "zero_value"
    value_weight: NonNegativeFloat = VALUE_WEIGHT
    brevity_weight: NonNegativeFloat = BREVITY_WEIGHT
    brevity_tokens: PositiveInt = BREVITY_TOKENS
    span_weight: NonNegativeFloat = SPAN_WEIGHT
    gold: Literal["verbatim", "written"] = "verbatim"
    paid: Literal["written", "verbatim"] = "written"
    guards: tuple[str, ...] = PAPER


def check_evidence(config: EvidenceConfig) -> None:
    """Raise `BadInput` for an unknown guard, and for rewards and guards of evidence that is not asked for."""
    for name in config.guards:
        if name not in GUARDS:
            raise BadInput(f"evidence.guards: there is no guard {name!r}; choose from {', '.join(GUARDS)}")
    for name in ("value_weight", "brevity_weight", "span_weight"):
        if getattr(config, name) and not config.cite:
            raise BadInput(f"evidence.cite=false asks for no evidence: set evidence.{name}=0 as well")
    if config.guards and not config.cite:
        raise BadInput("evidence.cite=false asks for no evidence: set evidence.guards=[] as well")


class Traced(Struct, frozen=True):
    """A proposal with its evidence: its location (None if it is not verbatim), and the guards that refuse it.

    Traced(proposed=Proposed(...), triple=Triple(...), evidence=Evidence("w7-000012", 118, 163, "..."), refusals=())
    """

    proposed: Proposed
    triple: Triple
    evidence: Evidence | None
    refusals: tuple[str, ...] = ()

    @property
    def is_verbatim(self) -> bool:
        """True if a text that was shown contains the span."""
        return self.evidence is not None


def trace(proposals: Sequence[Proposed], config: EvidenceConfig, count_tokens: CountTokens) -> list[Traced]:
    """Locate every span in the texts shown, and apply all guards except `needed`, which depends on the verifier.

    A proposal that is refused, or that lacks verbatim evidence where it is required (`check="invalid"`), is invalid
    from here on: the solver does not attempt it, and it earns its format part alone.
    """
    earlier = count_earlier([proposed.text for proposed in proposals])
    # The guard "needed" depends on the verifier, which is asked later (`hear`).
    guards = [name for name in config.guards if name != "needed"]
    found = []
    for proposed, num_earlier in zip(proposals, earlier, strict=True):
        passages = shown_passages(proposed.episode)
        outcome = proposed.episode.outcome
        span = outcome.span if isinstance(outcome, Proposal) else ""
        evidence = find_evidence(span, passages)
        triple = read_triple(proposed, passages, evidence.text if evidence else span, count_tokens, num_earlier)
        refused = refusals(triple, guards) if proposed.score.valid else ()
        is_lacking = config.check == "invalid" and config.cite and evidence is None
        found.append(_judged(Traced(proposed, triple, evidence), refused, is_lacking))
    return found


def _judged(traced: Traced, refused: tuple[str, ...], is_lacking: bool) -> Traced:
    proposed = traced.proposed
    if refused or is_lacking:
        score = structs.replace(guarded(proposed.score, refused), valid=False)
        proposed = structs.replace(proposed, score=score, question=None)
    return structs.replace(traced, proposed=proposed, refusals=refused)


def read_triple(
    proposed: Proposed, passages: Sequence[Passage], span: str, count_tokens: CountTokens, num_earlier: int
) -> Triple:
    """Question, answer and span, with the texts, thoughts and queries that the guards check."""
    episode = proposed.episode
    task, outcome = episode.task, episode.outcome
    assert isinstance(task, ProposeTask)
    written = outcome if isinstance(outcome, Proposal) else Proposal("", "")
    searches = [turn.action for turn in episode.turns if isinstance(turn.action, Search)]
    first = [block.content for turn in episode.turns for block in find_blocks(turn.text, ("think",))[:1]]
    return Triple(
        question=written.question,
        answer=written.answer,
        span=span,
        num_span_tokens=count_tokens(span),
        document=task.document.text if task.document else "",
        hops=task.hops,
        returned=tuple(passage.text for passage in passages if passage != task.document),
        thoughts=tuple(first),
        queries=tuple(query for search in searches for query in search.queries),
        num_earlier=num_earlier,
    )


def claim_of(traced: Traced, config: EvidenceConfig) -> Claim | None:
    """The claim that the verifier checks; None if the proposal is invalid, or if its span cannot earn a value."""
    proposed = traced.proposed
    if proposed.question is None or not (traced.is_verbatim or config.check == "none"):
        return None
    return Claim(proposed.question.id, proposed.question.text, proposed.question.answers, traced.triple.span)


def hear(traced: Traced, support: Support | None, config: EvidenceConfig) -> Traced:
    """Apply the guard `needed` to the verifier's result; unchanged if there is no result or no such guard."""
    if support is None or "needed" not in config.guards:
        return traced
    chances = {"chance_with": support.chance_with, "chance_without": support.chance_without}
    triple = structs.replace(traced.triple, **chances)
    return _judged(traced, refusals(triple, ["needed"]), is_lacking=False)


class Verifier:
    """Asks the solver, or a frozen scorer, each question with its span and without it.

    await Verifier(stage, evidence, settings).ask(step, triples) -> [Support(0.8, 0.2, 5), None]
    """

    def __init__(
        self, stage: Stage, evidence: EvidenceConfig, settings: VerifierSettings, scorer: ChatPolicy | None = None
    ) -> None:
        self.stage = stage
        self.evidence = evidence
        self.settings = settings
        self.scorer = scorer  # used by the hosted form only

    async def ask(self, step: Step, triples: Sequence[Traced]) -> list[Support | None]:
        """The value of each span; None if the verifier was not asked or gave no result."""
        claims = [claim_of(traced, self.evidence) for traced in triples]
        asked = [claim for claim in claims if claim is not None]
        supports = await self._verify(step, asked) if asked else []
        found = {claim.id: support for claim, support in zip(asked, supports, strict=True)}
        return [found[claim.id] if claim else None for claim in claims]

    def is_silent(self, traced: Traced, support: Support | None) -> bool:
        """True if the verifier was asked and gave no result, so that the value of the span is unknown."""
        return support is None and claim_of(traced, self.evidence) is not None

    async def _verify(self, step: Step, claims: list[Claim]) -> list[Support | None]:
        settings = self.settings
        if settings.form == "hosted":
            assert self.scorer is not None
            return await verify_claims(self.scorer, claims, settings, name=step.name, seed=step.seed)
        if settings.form == "teacher_forced":
            self.stage.actors.become("solver")
            policy, longest = self.stage.actors.policy, settings.sequence_tokens
            return await score_supports(policy, claims, guided=settings.guided, sequence_tokens=longest)
        jobs = verification_jobs(claims, settings.samples, step.name, guided=settings.guided)
        params = SamplingParams(temperature=settings.temperature)
        played = await self.stage.play(
            step, "solver", jobs, settings.limits, searcher=NoSearcher(), name="verifier", params=params
        )
        for episode in played.episodes:
            step.keep(episode, {"answer/exact_match": solver_reward(episode)})
        return read_supports(played.episodes, settings.samples)
