"""Evidence of a proposal: located in the texts shown, guarded, and verified (EVE-Agent, Eq. 10-14).

A span is verified by the probability of the answer with and without it: one turn, no search, and two prompts that
differ only by the span. Three forms:

    sampled          m turns with the span and m without, scored by exact match, as in the paper
    teacher_forced   the probability of the answer's tokens by one forward pass; nothing is sampled
    hosted           sampled, by a frozen model behind an OpenAI-compatible endpoint instead of the solver

    jobs = verification_jobs(claims, settings, "i0-p3")
    played = await actors.play("solver", jobs, NoSearcher(), settings.limits, seed=7)
    read_supports(played.episodes, settings.samples)
    -> [Support(chance_with=0.8, chance_without=0.2, num_samples=5), None]
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from quaere.chat.markup import find_blocks
from quaere.chat.protocol import Protocol, Quoted
from quaere.chat.renderer import Renderer
from quaere.chat.spans import find_evidence, shown_passages
from quaere.dialects.closed_book import ANSWER_CLOSE, ANSWER_OPEN
from quaere.dialects.registry import find_dialect
from quaere.dialects.roles import solver_reward
from quaere.errors import BadInput, SamplingFailed
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Passage, Question, Search, SolveTask, Support
from quaere.rewards.guards import GUARDS, PAPER, Triple, count_earlier, guarded, refusals
from quaere.rewards.proposer import BREVITY_TOKENS, BREVITY_WEIGHT, SPAN_WEIGHT, VALUE_WEIGHT, EvidenceCheck
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import ChatPolicy, Policy, TokenPolicy, open_policy
from quaere.search.searcher import NoSearcher
from quaere.setting_types import NonNegativeFloat, PositiveInt, check_settings

if TYPE_CHECKING:  # an endpoint verifies without torch
    from quaere.training.proposals import Proposed
    from quaere.training.rollouts import Stage
    from quaere.training.step import Step

Form = Literal["sampled", "teacher_forced", "hosted"]

_CLAIMS_AT_ONCE = 32  # claims per batch of teacher forcing, after which progress is reported


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
    for name, off in {"value_weight": "0", "brevity_weight": "0", "span_weight": "0", "guards": "[]"}.items():
        if getattr(config, name) and not config.cite:
            raise BadInput(f"evidence.cite=false asks for no evidence: set evidence.{name}={off} as well")


def trace(proposals: Sequence[Proposed], config: EvidenceConfig, count_tokens: Callable[[str], int]) -> list[Proposed]:
    """Locate every span in the texts shown, and apply all guards except `needed`, which depends on the verifier.

    A proposal that is refused, or that lacks verbatim evidence where it is required (`check="invalid"`), is invalid
    from here on: the solver does not attempt it, and it earns its format part alone.
    """
    earlier = count_earlier([proposed.written.question for proposed in proposals])
    guards = [name for name in config.guards if name != "needed"]
    found = []
    for proposed, num_earlier in zip(proposals, earlier, strict=True):
        passages = shown_passages(proposed.episode)
        evidence = find_evidence(proposed.written.span, passages)
        span = evidence.text if evidence else proposed.written.span
        triple = _read_triple(proposed, passages, span, count_tokens(span), num_earlier)
        refused = refusals(triple, guards) if proposed.score.valid else ()
        is_lacking = config.check == "invalid" and config.cite and evidence is None
        found.append(_refuse(structs.replace(proposed, triple=triple, evidence=evidence), refused, is_lacking))
    return found


def _refuse(proposed: Proposed, refused: tuple[str, ...], is_lacking: bool = False) -> Proposed:
    if not refused and not is_lacking:
        return structs.replace(proposed, refusals=refused)
    score = structs.replace(guarded(proposed.score, refused), valid=False)
    return structs.replace(proposed, score=score, question=None, refusals=refused)


def _read_triple(
    proposed: Proposed, passages: Sequence[Passage], span: str, num_tokens: int, num_earlier: int
) -> Triple:
    """Question, answer and span, with the texts, thoughts and queries that the guards check."""
    task, turns = proposed.task, proposed.episode.turns
    searches = [turn.action for turn in turns if isinstance(turn.action, Search)]
    return Triple(
        question=proposed.written.question,
        answer=proposed.written.answer,
        span=span,
        num_span_tokens=num_tokens,
        document=task.document.text if task.document else "",
        hops=task.hops,
        returned=tuple(passage.text for passage in passages if passage != task.document),
        thoughts=tuple(block.content for turn in turns for block in find_blocks(turn.text, ("think",))[:1]),
        queries=tuple(query for search in searches for query in search.queries),
        num_earlier=num_earlier,
    )


def hear(proposed: Proposed, support: Support | None, config: EvidenceConfig) -> Proposed:
    """Add the verifier's result, and apply the guard `needed` to it if there is a result and the guard is on."""
    proposed = structs.replace(proposed, support=support)
    if support is None or "needed" not in config.guards:
        return proposed
    chances = {"chance_with": support.chance_with, "chance_without": support.chance_without}
    return _refuse(proposed, refusals(structs.replace(proposed.triple, **chances), ["needed"]))


def measure_guards(refused: Sequence[tuple[str, ...]], guards: Sequence[str]) -> dict[str, float]:
    """Share of the questions that each guard refuses; `refused` are the guards that refuse each question.

    measure_guards([("verbatim", "new"), ()], ["verbatim", "new"]) -> {"guard/verbatim": 0.5, "guard/new": 0.5}
    """
    return {f"guard/{name}": sum(name in one for one in refused) / len(refused) for name in guards if refused}


# --------------------------------------------------------------------------------------------- claims and the verifier


class Claim(Struct, frozen=True):
    """A question, its accepted answers, and a span said to support them.

    Claim(id="q1", question="Who built the Halm bridge?", answers=("Orsolya Venn",), span="Venn built it in 1702.")
    """

    id: str
    question: str
    answers: tuple[str, ...]
    span: str

    @property
    def task(self) -> SolveTask:
        """The solver's task; the span is not part of it."""
        return SolveTask(Question(self.id, self.question, self.answers))


class VerifierSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How evidence is verified: how often the answer is given with the span and without it.

        VerifierSettings(form="hosted", samples=5, model="openai:qwen3-4b@http://localhost:8000/v1")

    Attributes:
        form: sampled: by turns of the solver; teacher_forced: by the chance of the answer's own tokens; hosted:
            by turns of a frozen model behind an endpoint. [EVE-Agent, Eq. 10 to 14]
        samples: Turns with the span, and as many without it. [EVE-Agent]
        model: Endpoint of the hosted form, openai:NAME@URL. [Quaere]
        turn_tokens: Tokens of one turn. [Quaere]
        sequence_tokens: A prompt that does not fit is not verified. [Quaere]
        temperature: Sampling temperature of the verifier's turns. [EVE-Agent]
        guided: Open the turn as an answer, for solvers too small to do so themselves. [Quaere]
    """

    form: Form = "sampled"
    samples: PositiveInt = 5
    model: str = ""
    turn_tokens: PositiveInt = 256
    sequence_tokens: PositiveInt = 3072
    temperature: NonNegativeFloat = 1.0
    guided: bool = False

    @property
    def limits(self) -> Limits:
        """Limits of the single turn."""
        return Limits(max_turns=1, turn_tokens=self.turn_tokens, sequence_tokens=self.sequence_tokens)

    def check(self) -> None:
        """Raise BadInput for values out of bounds, a hosted form without a model, or a model in another form."""
        check_settings(self, "verifier")
        if (self.form == "hosted") != bool(self.model):
            raise BadInput("the verifier's model must be openai:NAME@URL in the hosted form, and empty otherwise")


def open_hosted(settings: VerifierSettings) -> ChatPolicy:
    """Open the frozen model of the hosted form, which the caller must stop; BadInput if it is not openai:NAME@URL."""
    policy = open_policy(settings.model) if settings.model.startswith("openai:") else None
    if not isinstance(policy, ChatPolicy):
        raise BadInput(f"the hosted verifier's model must be openai:NAME@URL, not {settings.model!r}")
    return policy


# ------------------------------------------------------------------------------------------------------------ sampled


def verification_jobs(claims: Sequence[Claim], settings: VerifierSettings, name: str) -> list[Job]:
    """Per claim, `samples` episodes with its span, then as many without; those of one claim are adjacent.

    verification_jobs([claim], VerifierSettings(samples=5), "i0-p3")[7].episode_id == "i0-p3-i0-000017-without2"
    """
    ask = find_dialect("closed-book", "verifier").open
    return [
        Job(ask(guided=settings.guided, span=span), claim.task, f"{name}-{claim.id}-{side}{number}")
        for claim in claims
        for side, span in (("with", claim.span), ("without", ""))
        for number in range(settings.samples)
    ]


def read_supports(episodes: Sequence[Episode], num_samples: int) -> list[Support | None]:
    """The support of each claim, by exact match over the episodes of `verification_jobs`.

    Episodes in which nothing was written (the policy failed, or the prompt did not fit) are left out, and as many from
    the end of the other side, so that both sides have equally many. None if a side has no episodes left.
    """
    size = 2 * num_samples
    if num_samples < 1 or len(episodes) % size:
        raise ValueError(
            f"{len(episodes)} episodes: each claim needs {num_samples} with and {num_samples} without span"
        )
    return [_read_support(episodes[first : first + size], num_samples) for first in range(0, len(episodes), size)]


def _read_support(episodes: Sequence[Episode], num_samples: int) -> Support | None:
    if len({episode.task.id for episode in episodes}) != 1:
        raise ValueError(f"the episodes from {episodes[0].id} on belong to different claims")
    answered = [
        [solver_reward(episode) for episode in side if episode.turns and episode.end != "failed"]
        for side in (episodes[:num_samples], episodes[num_samples:])
    ]
    num_left = min(map(len, answered))
    if not num_left:
        return None
    chance_with, chance_without = (sum(side[:num_left]) / num_left for side in answered)
    return Support(chance_with, chance_without, num_left)


# ----------------------------------------------------------------------------------------------------- teacher-forced


async def score_supports(
    policy: TokenPolicy, claims: Sequence[Claim], settings: VerifierSettings
) -> list[Support | None]:
    """Probability of each claim's answer with its span and without, from the policy's log-probs.

    The prompt is that of the sampled form, with the turn opened as an answer. The probability is that of the answer's
    tokens and its closing tag; without the tag, "Venn" would be at least as likely as "Venn of Halmgate". Of several
    accepted answers the most likely counts. Spellings that exact match would accept as well are not included. None if a
    sequence exceeds `sequence_tokens`.
    """
    forced = [_force_answers(policy, claim, settings.guided) for claim in claims]
    fits = [all(len(token_ids) <= settings.sequence_tokens for token_ids, _ in rows) for rows in forced]
    flat = [row for rows, fit in zip(forced, fits, strict=True) if fit for row in rows]
    scored = await policy.sampler.score_many([token_ids for token_ids, _ in flat], [start for _, start in flat])
    logprobs = (sum(row[start:]) for row, (_, start) in zip(scored, flat, strict=True))
    return [
        _best_support(*([next(logprobs) for _ in claim.answers] for _ in range(2))) if fit else None
        for claim, fit in zip(claims, fits, strict=True)
    ]


def _force_answers(policy: TokenPolicy, claim: Claim, guided: bool) -> list[tuple[list[int], int]]:
    """Tokens, and where the answer begins: every answer after the prompt with the span, then after that without it."""
    if not claim.answers:
        raise ValueError(f"claim {claim.id} has no answer to score")
    ask = find_dialect("closed-book", "verifier").open
    prompts = [_open_answer(policy, claim, ask(guided=guided, span=span)) for span in (claim.span, "")]
    answers = [_answer_ids(policy.renderer, answer) for answer in claim.answers]
    return [(prompt + answer, len(prompt)) for prompt in prompts for answer in answers]


def _open_answer(policy: TokenPolicy, claim: Claim, protocol: Protocol) -> list[int]:
    """The prompt as an episode would have it, up to where the answer begins."""
    conversation = policy.begin(claim.id, protocol, claim.task)
    conversation.open_turn(ANSWER_OPEN)
    return [token for segment in conversation.segments for token in segment.token_ids]


def _answer_ids(renderer: Renderer, answer: str) -> list[int]:
    """Token ids of the answer and its closing tag, as a model would write them.

    They are encoded in one piece, unless the tag is a special token: a tokenizer may have a token for ".</" that a
    model uses.
    """
    is_plain = renderer.encode_parts((ANSWER_CLOSE,)) == renderer.encode_parts((Quoted(ANSWER_CLOSE),))
    answer = answer.strip()
    return renderer.encode_parts((Quoted(answer + ANSWER_CLOSE),) if is_plain else (Quoted(answer), ANSWER_CLOSE))


def _best_support(logprobs_with: Sequence[float], logprobs_without: Sequence[float]) -> Support:
    if any(map(math.isnan, (*logprobs_with, *logprobs_without))):
        raise SamplingFailed("the model's log-probs are NaN")
    # Rounding can put a sum of log-probs above 0.
    chance_with, chance_without = (min(1.0, math.exp(max(side))) for side in (logprobs_with, logprobs_without))
    return Support(chance_with, chance_without)


# ---------------------------------------------------------------------------------------------------------- all forms


async def verify_claims(
    policy: Policy,
    claims: Sequence[Claim],
    settings: VerifierSettings,
    *,
    name: str = "verify",
    seed: int = 0,
    concurrency: int = 32,
    on_support: Callable[[Claim, Support | None], None] = lambda claim, support: None,
) -> list[Support | None]:
    """The support of every claim.

    `on_support` is called for each in order. The hosted form needs `open_hosted`'s policy.

    A claim that could not be verified has None. Raises SamplingFailed if the policy failed at every turn.
    """
    settings.check()
    if settings.form == "teacher_forced":
        found = _forced_supports(policy, claims, settings)
    else:
        found = _sampled_supports(policy, claims, settings, name, seed, concurrency)
    supports: list[Support | None] = []
    async for support in found:
        on_support(claims[len(supports)], support)
        supports.append(support)
    return supports


async def _forced_supports(
    policy: Policy, claims: Sequence[Claim], settings: VerifierSettings
) -> AsyncIterator[Support | None]:
    if not isinstance(policy, TokenPolicy):
        raise BadInput(f"{policy.name} returns no log-probs, so its answers cannot be teacher-forced")
    for first in range(0, len(claims), _CLAIMS_AT_ONCE):
        batch = claims[first : first + _CLAIMS_AT_ONCE]
        for support in await score_supports(policy, batch, settings):
            yield support


async def _sampled_supports(
    policy: Policy, claims: Sequence[Claim], settings: VerifierSettings, name: str, seed: int, concurrency: int
) -> AsyncIterator[Support | None]:
    jobs = verification_jobs(claims, settings, name)
    params = SamplingParams(temperature=settings.temperature)
    group: list[Episode] = []
    failures: list[str] = []
    num_written = 0
    async for episode in run_many(
        policy, jobs, NoSearcher(), settings.limits, seed=seed, params=params, concurrency=concurrency
    ):
        if episode.end == "failed" and (failure := episode.turns[-1].failure):
            failures.append(failure.message)
        num_written += bool(episode.turns) and episode.end != "failed"
        group.append(episode)
        if len(group) == 2 * settings.samples:
            yield _read_support(group, settings.samples)
            group = []
    if failures and not num_written:
        raise SamplingFailed(failures[0])


# ------------------------------------------------------------------------------------------ the verifier of a run


def claim_of(proposed: Proposed, config: EvidenceConfig) -> Claim | None:
    """The claim that the verifier checks; None if the proposal is invalid, or if its span cannot earn a value."""
    if proposed.question is None or not (proposed.is_verbatim or config.check == "none"):
        return None
    return Claim(proposed.question.id, proposed.question.text, proposed.question.answers, proposed.triple.span)


@dataclass(frozen=True)
class Verifier:
    """Asks the solver, or a frozen scorer, each question with its span and without it.

    await Verifier(stage, evidence, settings).ask(step, proposals) -> [Support(0.8, 0.2, 5), None]
    """

    stage: Stage
    evidence: EvidenceConfig
    settings: VerifierSettings
    scorer: ChatPolicy | None = None  # used by the hosted form only

    async def ask(self, step: Step, proposals: Sequence[Proposed]) -> list[Support | None]:
        """The value of each span; None if the verifier was not asked or gave no result."""
        claims = [claim_of(proposed, self.evidence) for proposed in proposals]
        asked = [claim for claim in claims if claim is not None]
        supports = await self._verify(step, asked) if asked else []
        found = {claim.id: support for claim, support in zip(asked, supports, strict=True)}
        return [found[claim.id] if claim else None for claim in claims]

    def is_silent(self, proposed: Proposed, support: Support | None) -> bool:
        """True if the verifier was asked and gave no result, so that the value of the span is unknown."""
        return support is None and claim_of(proposed, self.evidence) is not None

    async def _verify(self, step: Step, claims: list[Claim]) -> list[Support | None]:
        settings = self.settings
        if settings.form == "hosted":
            assert self.scorer is not None
            return await verify_claims(self.scorer, claims, settings, name=step.name, seed=step.seed)
        if settings.form == "teacher_forced":
            self.stage.actors.become("solver")
            return await score_supports(self.stage.actors.policy, claims, settings)
        jobs = verification_jobs(claims, settings, step.name)
        params = SamplingParams(temperature=settings.temperature)
        played = await self.stage.play(
            step, "solver", jobs, settings.limits, searcher=NoSearcher(), name="verifier", params=params
        )
        for episode in played.episodes:
            step.keep(episode, {"answer/exact_match": solver_reward(episode)})
        return read_supports(played.episodes, settings.samples)
