"""What a span of evidence does for a question: how often the answer is given with it and without it (Eq. 10-14).

One turn, no search, and two prompts that differ by the span alone. Three forms:

    sampled          m turns with the span and m without, and exact match: what the paper has
    teacher_forced   the chance of the answer itself, by one pass over it; nothing is sampled
    hosted           sampled, by a frozen model behind an OpenAI-compatible endpoint instead of the solver

    jobs = verification_jobs(claims, 5, "i0-p3")
    played = await actors.play("solver", jobs, NoSearcher(), VerifierSettings().limits, seed=7)
    read_supports(played.episodes, 5) -> [Support(chance_with=0.8, chance_without=0.2, num_samples=5), None]
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal

from msgspec import Struct

from quaere.chat.messages import Quoted
from quaere.chat.protocol import Protocol
from quaere.chat.renderer import Renderer
from quaere.dialects.closed_book.protocol import ANSWER_CLOSE, ANSWER_OPEN
from quaere.dialects.registry import find_dialect
from quaere.dialects.solver import solver_reward
from quaere.errors import BadInput, SamplingFailed
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Question, SolveTask, Support
from quaere.rollout.episode import Limits
from quaere.rollout.many import Job, run_many
from quaere.rollout.policy import ChatPolicy, Policy, TokenPolicy, open_policy
from quaere.search.searcher import NoSearcher
from quaere.setting_types import NonNegativeFloat, PositiveInt, check_settings

Form = Literal["sampled", "teacher_forced", "hosted"]

_CLAIMS_AT_ONCE = 32  # between two words on how far teacher forcing has come


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
        """What the solver is asked; the span is not part of it."""
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
        """A single turn."""
        return Limits(max_turns=1, turn_tokens=self.turn_tokens, sequence_tokens=self.sequence_tokens)

    def check(self) -> None:
        """Refuse values out of bounds, and a model where none is asked."""
        check_settings(self, "verifier")
        if (self.form == "hosted") != bool(self.model):
            raise BadInput("the verifier's model belongs to its hosted form: openai:NAME@URL, and only there")


def open_hosted(settings: VerifierSettings) -> ChatPolicy:
    """The frozen model of the hosted form; whoever opens it stops it."""
    policy = open_policy(settings.model) if settings.model.startswith("openai:") else None
    if not isinstance(policy, ChatPolicy):
        raise BadInput(f"the hosted verifier is written openai:NAME@URL, not {settings.model!r}")
    return policy


# ------------------------------------------------------------------------------------------------------------ sampled


def verification_jobs(claims: Sequence[Claim], num_samples: int, name: str, *, guided: bool = False) -> list[Job]:
    """For each claim `num_samples` episodes with its span, then as many without; those of one claim stand together.

    verification_jobs([claim], 5, "i0-p3")[7].episode_id == "i0-p3-i0-000017-without2"
    """
    ask = find_dialect("closed-book", "verifier").open
    return [
        Job(ask(guided=guided, span=span), claim.task, f"{name}-{claim.id}-{side}{number}")
        for claim in claims
        for side, span in (("with", claim.span), ("without", ""))
        for number in range(num_samples)
    ]


def read_supports(episodes: Sequence[Episode], num_samples: int) -> list[Support | None]:
    """What the episodes of `verification_jobs` say of each claim, by exact match.

    An episode in which nothing was written (the policy failed, or the prompt did not fit) says nothing about the span:
    it is left out, and so are as many of the other side, the last ones, so that both have equally many. None where a
    side has nothing left.
    """
    size = 2 * num_samples
    if num_samples < 1 or len(episodes) % size:
        raise ValueError(f"{len(episodes)} episodes are not {num_samples} with and {num_samples} without each span")
    return [_read_support(episodes[first : first + size], num_samples) for first in range(0, len(episodes), size)]


def _read_support(episodes: Sequence[Episode], num_samples: int) -> Support | None:
    if len({episode.task.id for episode in episodes}) != 1:
        raise ValueError(f"the episodes from {episodes[0].id} on are not all of one claim")
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
    policy: TokenPolicy, claims: Sequence[Claim], *, guided: bool = False, sequence_tokens: int = 3072
) -> list[Support | None]:
    """The chance of each claim's answer with its span and without, by the policy's own log-probs.

    The prompt is the sampled form's, with the turn opened as an answer. The chance is that of the answer's tokens and
    of the tag that closes it, without which "Venn" would be at least as likely as "Venn of Halmgate"; of several
    accepted answers the likeliest counts. Other spellings that exact match would forgive are not counted. None where a
    sequence is longer than `sequence_tokens`.
    """
    forced = [_force_answers(policy, claim, guided) for claim in claims]
    fits = [all(len(row.token_ids) <= sequence_tokens for row in rows) for rows in forced]
    flat = [row for rows, fit in zip(forced, fits, strict=True) if fit for row in rows]
    scores = iter(await policy.sampler.score_many([row.token_ids for row in flat], [row.start for row in flat]))
    supports: list[Support | None] = []
    for claim, rows, fit in zip(claims, forced, fits, strict=True):
        if not fit:
            supports.append(None)
            continue
        logprobs = [sum(next(scores)[row.start :]) for row in rows]
        supports.append(_best_support(logprobs[: len(claim.answers)], logprobs[len(claim.answers) :]))
    return supports


class _Forced(Struct, frozen=True):
    """A prompt and an answer to it, which begins at `start`."""

    token_ids: list[int]
    start: int


def _force_answers(policy: TokenPolicy, claim: Claim, guided: bool) -> list[_Forced]:
    """Every accepted answer after the prompt with the span, then every one after the prompt without it."""
    if not claim.answers:
        raise ValueError(f"claim {claim.id} has no answer to score")
    ask = find_dialect("closed-book", "verifier").open
    prompts = [_open_answer(policy, claim, ask(guided=guided, span=span)) for span in (claim.span, "")]
    answers = [_answer_ids(policy.renderer, answer) for answer in claim.answers]
    return [_Forced(prompt + answer, len(prompt)) for prompt in prompts for answer in answers]


def _open_answer(policy: TokenPolicy, claim: Claim, protocol: Protocol) -> list[int]:
    """The prompt as an episode would have it, up to where the answer begins."""
    conversation = policy.begin(claim.id, protocol, claim.task)
    conversation.open_turn(ANSWER_OPEN)
    return [token for segment in conversation.segments for token in segment.token_ids]


def _answer_ids(renderer: Renderer, answer: str) -> list[int]:
    """The answer and its closing tag as a model would write them: in one piece, unless the tag is a token of its own.

    A tokenizer may have a token for ".</", and a model uses it.
    """
    is_plain = renderer.encode_parts((ANSWER_CLOSE,)) == renderer.encode_parts((Quoted(ANSWER_CLOSE),))
    answer = answer.strip()
    return renderer.encode_parts((Quoted(answer + ANSWER_CLOSE),) if is_plain else (Quoted(answer), ANSWER_CLOSE))


def _best_support(logprobs_with: Sequence[float], logprobs_without: Sequence[float]) -> Support:
    if any(map(math.isnan, (*logprobs_with, *logprobs_without))):
        raise SamplingFailed("the model's log-probs are not numbers")
    # Rounding may carry a sum of log-probs past 0.
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
    """Verify every claim; `on_support` hears of each in their order. For the hosted form, `policy` is `open_hosted`'s.

    None stands for a claim that could not be verified. Where the policy failed at every turn, that is raised.
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
        raise BadInput(f"{policy.name} gives text without log-probs, so its answers cannot be teacher-forced")
    for first in range(0, len(claims), _CLAIMS_AT_ONCE):
        batch = claims[first : first + _CLAIMS_AT_ONCE]
        for support in await score_supports(
            policy, batch, guided=settings.guided, sequence_tokens=settings.sequence_tokens
        ):
            yield support


async def _sampled_supports(
    policy: Policy, claims: Sequence[Claim], settings: VerifierSettings, name: str, seed: int, concurrency: int
) -> AsyncIterator[Support | None]:
    jobs = verification_jobs(claims, settings.samples, name, guided=settings.guided)
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
