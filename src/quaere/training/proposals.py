"""The proposer: its settings, and its questions from draft to curriculum, with every check, reward and advantage.

A proposal is one record, `Proposed`, which each stage extends:

    reward.read(episode)              the format score, and whether the solver should attempt the question
    trace(proposals, ...)             EVE: its evidence, and the guards that refuse it (`evidence.py`)
    judge_form, judge_attempts        the reason for which the curriculum drops it
    make_candidate(proposed, ...)     the candidate that the run stores
    proposer_advantages(rewards, ...) its advantage, by the rewards of the batch
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from quaere.chat.markup import find_blocks
from quaere.chat.protocol import Protocol
from quaere.objectives import DELTA, LoneGroup
from quaere.records import (
    Candidate,
    DropReason,
    Episode,
    Evidence,
    Proposal,
    ProposeTask,
    Question,
    Search,
    Support,
    name_sentences,
    searches_needed,
)
from quaere.rewards.answers import Containment, normalise_answer, year_aliases
from quaere.rewards.guards import Triple
from quaere.rewards.proposer import (
    FORMAT_WEIGHT,
    DifficultyShape,
    FormatRule,
    FormatScore,
    InvalidRule,
    ProposerReward,
    TripleReward,
    format_score,
)
from quaere.rollout.episode import Job, Limits
from quaere.setting_types import NonNegativeFloat, NonNegativeInt, PositiveInt
from quaere.training.settings import HardeningConfig, LearnerSettings
from quaere.training.step import Step, mean_of, mean_parts, measure_advantages, measure_proposals, pass_histogram

if TYPE_CHECKING:  # episodes are read, and warm-ups planned, without torch
    from quaere.objectives.policy_gradient import Advantages

# Episodes per document of GRPO, for comparison: 4 questions about each document, each attempted 4 times.
GRPO_ROLLOUTS = 4 * (4 + 1)

HopRatio = Annotated[
    tuple[NonNegativeInt, ...], Meta(min_length=1, extra={"why": "it gives a weight for 1, 2, ... hops"})
]
Attempts = Annotated[int, Meta(ge=2, extra={"why": "a question's difficulty is measured by comparing attempts"})]


class Proposed(Struct, frozen=True):
    """An episode of the proposer with its format score, and its question if the solver should attempt it.

    The solver's attempts (`num_right` of `num_attempts` were right, `num_easy` others only with too few searches) and
    the reward follow in a recipe's `judge`. Where evidence is asked for, `triple` is what the guards see, `evidence`
    the span's place in a text that was shown (None if it is not verbatim), `refusals` are the guards that refuse it,
    and `support` is the verifier's result. `cluster` and `question_type` are the choices of a corpus selector.

        Proposed(episode=Episode(...), score=FormatScore(...), question=Question(id="i0-000001", text="Who ...?", ...))
    """

    episode: Episode
    score: FormatScore
    question: Question | None
    num_right: int = 0
    num_attempts: int = 0
    num_easy: int = 0
    reward: ProposerReward = ProposerReward(0.0, 0.0, 0.0)
    triple: Triple = Triple("", "", "", 0, "", 1)
    evidence: Evidence | None = None
    refusals: tuple[str, ...] = ()
    support: Support | None = None
    cluster: int = -1
    question_type: str = ""

    @property
    def task(self) -> ProposeTask:
        """The document, and the number of hops asked for."""
        assert isinstance(self.episode.task, ProposeTask)
        return self.episode.task

    @property
    def written(self) -> Proposal:
        """Question, answer and span as written; "" for each if there are none."""
        return self.episode.outcome if isinstance(self.episode.outcome, Proposal) else Proposal("", "")

    @property
    def sentences(self) -> str:
        """The sentences that the question rests on (`name_sentences`); "" if unknown."""
        return name_sentences(self.question.evidence if self.question else (), self.evidence)

    @property
    def is_verbatim(self) -> bool:
        """True if a text that was shown contains the span."""
        return self.evidence is not None

    def measured(self) -> dict[str, float]:
        """Every component of the reward, as metrics for the store."""
        found = {
            "reward/total": self.reward.total,
            **{f"reward/{name}": value for name, value in structs.asdict(self.reward).items()},
            **{f"format/{name}": float(getattr(self.score, name)) for name in ("think", "tool", "answer", "valid")},
            "attempts/right": float(self.num_right),
            "attempts/num": float(self.num_attempts),
        }
        if isinstance(self.reward, TripleReward):
            found["evidence/verbatim"] = float(self.is_verbatim)
            found["evidence/tokens"] = float(self.triple.num_span_tokens)
            found["evidence/refused"] = float(bool(self.refusals))
            for name in ("chance_with", "chance_without", "value") if self.support else ():
                found[f"evidence/{name}"] = getattr(self.support, name)
            if self.cluster >= 0:
                found["selector/cluster"] = float(self.cluster)
        return found


def propose_jobs(protocol: Protocol, tasks: Sequence[ProposeTask], num_questions: int) -> list[Job]:
    """`num_questions` episodes per task; those of one task are adjacent."""
    return [
        Job(protocol, task, task.id if num_questions == 1 else f"{task.id}.{number}")
        for task in tasks
        for number in range(num_questions)
    ]


def read_proposal(episode: Episode, **rules: Any) -> Proposed:
    """Format score of a proposer's episode, from its actions and replies, by the rules of `format_score`."""
    task = episode.task
    assert isinstance(task, ProposeTask)
    outcome = episode.outcome if isinstance(episode.outcome, Proposal) else Proposal("", "")
    calls = [turn for turn in episode.turns if isinstance(turn.action, Search)]
    sources = [task.document.titled_text] if task.document else []
    sources += [hit.passage.titled_text for turn in calls for result in turn.results for hit in result.hits]
    score = format_score(
        question=outcome.question,
        answer=outcome.answer,
        hops=task.hops,
        num_turns=len(episode.turns),
        num_planned_turns=sum(opens_with_plan(turn.text) for turn in episode.turns),
        num_valid_calls=len(calls),
        num_responses=sum(bool(turn.results) for turn in calls),
        sources=sources,
        **rules,
    )
    # A proposal written after a failed search is neither penalised nor attempted by the solver.
    if not score.valid or episode.search_failed:
        return Proposed(episode, score, None)
    facts = searches_needed(task.hops)
    accepted = (outcome.answer, *year_aliases(outcome.question, outcome.answer))
    return Proposed(
        episode, score, Question(episode.id, outcome.question, accepted, task.hops, facts=facts, searches=facts)
    )


def opens_with_plan(text: str) -> bool:
    """True if the turn starts with a non-empty thought.

    opens_with_plan("<think>I need the builder.</think><answer>Venn</answer>") -> True
    """
    first = next(iter(find_blocks(text, ("think",))), None)
    return first is not None and bool(first.content.strip()) and text.lstrip().startswith("<think>")


def _is_too_long(question: str, max_words: int) -> bool:
    """True if the question has more than `max_words` words; never for 0."""
    return bool(max_words) and len(question.split()) > max_words


def best_samples(proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """The best by format of each `num_samples` consecutive proposals; the first among equals.

    Order of preference: episodes without a failed search, then questions the filter could keep, then the format score.
    """

    def preference(item: Proposed) -> tuple[bool, bool, float]:
        is_valid = item.score.valid and not _is_too_long(item.written.question, max_words)
        return not item.episode.search_failed, is_valid, item.score.total

    starts = range(0, len(proposals), num_samples)
    return [max(proposals[start : start + num_samples], key=preference) for start in starts]


def keep_best(step: Step, proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """The best of each `num_samples` consecutive proposals (`best_samples`); the other episodes are only stored."""
    best = best_samples(proposals, num_samples, max_words)
    chosen = {item.episode.id for item in best}
    for item in proposals:
        if item.episode.id not in chosen and not item.episode.search_failed:
            step.keep(item.episode, {"format/total": item.score.total})
    return best


def can_be_judged(proposed: Proposed, attempts: Sequence[Episode]) -> bool:
    """True if the proposal can be rewarded.

    It cannot if a search of the proposer failed, or if fewer than two of the solver's attempts had no failed search.
    """
    return not proposed.episode.search_failed and (proposed.question is None or len(attempts) >= 2)


# -------------------------------------------------------------------------------- which questions the solver trains on


def judge_form(proposed: Proposed, seen: set[str], max_words: int = 0) -> DropReason:
    """Reason to drop a proposal without attempts; "" if it passes (`judge_text`).

    `seen` may also have sentences, of earlier iterations, that are not to be asked for again (`remember_kept`).
    """
    if proposed.episode.search_failed:
        return "unfinished"
    if proposed.question is None and not proposed.score.leaked:
        return "invalid"
    reason = judge_text(proposed.written.question, seen, max_words, leaked=proposed.score.leaked)
    # Without evidence the name of its sentences is "", as are the normalised words of a given question such as "?".
    return reason or ("duplicate" if proposed.sentences and proposed.sentences in seen else "")


def judge_text(question: str, seen: set[str], max_words: int, *, leaked: bool) -> DropReason:
    """Reason to drop a question by its text; "" if it passes. `seen` (normalised questions so far) is extended.

    A question of more than `max_words` words is invalid; 0 means no limit. `leaked`: it contains its answer.
    """
    if leaked:
        return "leaked answer"
    if _is_too_long(question, max_words):
        return "invalid"
    text = normalise_answer(question)
    if text in seen:
        return "duplicate"
    seen.add(text)
    return ""


def remember_questions(candidates: Sequence[Candidate]) -> set[str]:
    """The normalised questions of those candidates that passed `judge_form`, as its `seen` in a resumed run."""

    def passed(item: Candidate) -> bool:
        if item.reason == "refused":  # only questions that passed `judge_form` are sent to the verifier
            return item.refusals == ("needed",)
        return bool(item.num_attempts) or item.reason not in ("unfinished", "leaked answer", "invalid")

    return {normalise_answer(item.question) for item in candidates if passed(item)}


def remember_kept(earlier: Sequence[Candidate], *, given_again: bool = False) -> set[str]:
    """Words and evidence sentences of questions kept earlier, which a new question must not repeat (for `seen`).

    The sentences of given questions are left out, because a rewording keeps them. Their words are left out if they are
    `given_again`, because then each iteration adds these questions again.
    """
    words = {normalise_answer(item.question) for item in earlier if item.kept and not (given_again and item.given)}
    return words | {item.sentences for item in earlier if item.kept and not item.given} - {""}


def judge_attempts(num_right: int, num_attempts: int, num_easy: int = 0) -> DropReason:
    """Reason to drop a question by its attempts; "" if it is solved sometimes, as only such questions give a gradient.

    Attempts with a failed search do not count. With no attempt left the difficulty is unknown: "spoiled". Of `num_easy`
    attempts, right with too few searches, nothing is to be learned about searching, nor are they wrong.

    judge_attempts(0, 5) == "never solved"; judge_attempts(5, 5) == "always solved"; judge_attempts(2, 5) == ""
    """
    if not num_attempts:
        return "spoiled"  # not "unfinished": a resumed run must know that the question passed `judge_form`
    if num_right == 0:
        return "never solved"
    return "always solved" if num_right + num_easy == num_attempts else ""


def make_candidate(proposed: Proposed, *, step: int, iteration: int, reason: DropReason) -> Candidate:
    """The proposal as a candidate of the curriculum, for the store; `reason` is why it is dropped, "" if it is kept."""
    task, written, score = proposed.task, proposed.written, proposed.score
    return Candidate(
        id=proposed.episode.id,
        step=step,
        iteration=iteration,
        episode_id=proposed.episode.id,
        document_id=task.document.doc_id if task.document else "",
        hops=task.hops,
        question=written.question,
        answer=written.answer,
        reason=reason,
        scores={"format": score.total, "think": score.think, "tool": score.tool, "answer": score.answer},
        span=proposed.triple.span,
        aliases=year_aliases(written.question, written.answer),
        num_right=proposed.num_right,
        num_attempts=proposed.num_attempts,
        evidence=proposed.evidence,
        support=proposed.support,
        refusals=proposed.refusals,
        cluster=proposed.cluster,
        question_type=proposed.question_type,
    )


# ----------------------------------------------------------------------- settings, advantages and metrics of the phase


class RewardConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The proposer's reward.

        RewardConfig(shape="single", format_weight=0.5)

    Attributes:
        shape: Difficulty reward: single is highest when exactly one attempt of n is right; parabola, 4p(1-p),
            when half are. [Dr. Zero, Eq. 4]
        format_weight: Weight of the format reward; rewordings have none. [Dr. Zero; EVE-Agent, Eq. 16]
        format_rule: Format reward: released is that of Dr. Zero's code; eve gives a leaked answer the full format
            reward, and several hops without a search 1 / hops. [Dr. Zero; EVE-Agent, Eq. 9]
        invalid_rule: text: a question that holds its answer is invalid; algorithm: it is not. [EVE-Agent]
        containment: How an answer is looked for in a text: words: as whole words; characters: anywhere, even inside
            a word or number (preset paper). [Quaere; EVE-Agent, Eq. 9]
        choices: A question may name its answer as one of two alternatives to choose from ("Who built it, Venn or
            Brod?"). [Quaere]
        needed_searches: Count a right attempt only if it made as many different searches with results as the
            question claims to need; auto: where checked questions are reworded. [Quaere]
    """

    shape: DifficultyShape = "single"
    format_weight: NonNegativeFloat = FORMAT_WEIGHT
    format_rule: FormatRule = "released"
    invalid_rule: InvalidRule = "text"
    containment: Containment = "words"
    choices: bool = True
    needed_searches: bool | Literal["auto"] = "auto"

    def min_searches(self, hops: int) -> int:
        """Minimum number of searches with results for a right attempt at a question of `hops` hops to count.

        RewardConfig(needed_searches=True).min_searches(3) == 2
        """
        return searches_needed(hops) if self.needed_searches is True else 0

    def read(self, episode: Episode) -> Proposed:
        """The proposer's episode with its format score by these rules."""
        return read_proposal(
            episode,
            format_rule=self.format_rule,
            invalid_rule=self.invalid_rule,
            containment=self.containment,
            choices=self.choices,
        )


class ProposerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The proposer's phase: it writes questions about documents, and the solver tries to answer them.

        ProposerConfig(steps=50, batch=256, hop_ratio=(4, 3, 2, 1), attempts=5, advantage="hrpo")

    Attributes:
        task: propose: write a question about a document; harden: reword a checked question of `generation.given`
            so that it needs one search more; reword: the same with the second page given, so without searching.
            [Dr. Zero; Quaere]
        steps: Steps of the phase in each iteration; 0: the proposer is not trained. [Dr. Zero, Table 5]
        batch: Documents a step. [Dr. Zero, Table 5]
        hop_ratio: Weights of questions of 1, 2, 3, ... hops; rewordings do not use it. [Dr. Zero]
        document: Show the proposer a document to begin with. [Dr. Zero]
        held_back: A file of questions that the solver is measured on: the proposer neither is shown their documents
            nor finds them, and questions that repeat theirs from copies elsewhere are dropped. [Quaere]
        questions: Questions that are written about each document. [Dr. Zero, Table 5]
        attempts: Attempts of the solver at each question. [Dr. Zero, Table 5]
        advantage: Baseline of a reward: hrpo compares questions of the same number of hops, grpo those of the
            same document, global the whole batch. [Dr. Zero, Eq. 3; GRPO; REINFORCE++]
        unbiased_std: Standard deviation of rewards with n - 1 in place of n. [Quaere]
        lone_group: Advantage of a question with nothing to compare it with: zero, or raw, its reward as it is.
            [Quaere]
        delta: Added to the standard deviation that rewards are divided by. [Dr. Zero, Eq. 3]
        shuffle_advantages: A control that must not learn: advantages go to the wrong episodes. [Quaere]
        carry_on: Each iteration goes on where the last one ended: with the optimizer's moments, the place in the
            learning-rate schedule and the next documents. Else each starts anew, with documents drawn afresh.
            Rewordings are of the next facts either way. [Dr. Zero, released code]
    """

    task: Literal["propose", "harden", "reword"] = "propose"
    steps: NonNegativeInt = 50
    batch: PositiveInt = 256
    hop_ratio: HopRatio = (4, 3, 2, 1)
    document: bool = True
    held_back: str = ""
    questions: PositiveInt = 1
    attempts: Attempts = 5
    advantage: Literal["hrpo", "grpo", "global"] = "hrpo"
    unbiased_std: bool = True
    lone_group: LoneGroup = "zero"
    delta: NonNegativeFloat = DELTA
    shuffle_advantages: bool = False  # a control: nothing is left to learn from
    carry_on: bool = False
    reward: RewardConfig = RewardConfig()
    hardening: HardeningConfig = HardeningConfig()
    limits: Limits = Limits(sequence_tokens=4096, answer_tokens=128)
    learner: LearnerSettings = LearnerSettings()

    @property
    def is_hardening(self) -> bool:
        """True if checked questions are reworded."""
        return self.task != "propose"

    @property
    def num_samples(self) -> int:
        """Maximum number of episodes per update."""
        return self.batch * self.questions


def proposer_advantages(
    rewards: Sequence[float], proposals: Sequence[Proposed], config: ProposerConfig, seed: int
) -> Advantages:
    """Rewards standardised by requested hops (HRPO), by document (GRPO) or over the batch (REINFORCE++)."""
    from quaere.objectives.policy_gradient import grpo, hrpo, reinforce_global
    from quaere.training.rollouts import check_finite, shuffled

    check_finite(rewards)
    options: dict[str, Any] = {"delta": config.delta, "unbiased": config.unbiased_std}
    if config.advantage == "hrpo":
        found = hrpo(rewards, [item.task.hops for item in proposals], lone_group=config.lone_group, **options)
    elif config.advantage == "grpo":
        documents = {item.task.id: number for number, item in enumerate(proposals)}
        found = grpo(rewards, [documents[item.task.id] for item in proposals], lone_group=config.lone_group, **options)
    else:
        found = reinforce_global(rewards, **options)
    return shuffled(found, seed) if config.shuffle_advantages else found


def measure_proposer(
    step: Step, judged: Sequence[Proposed], advantages: Advantages, num_documents: int, num_attempts: int
) -> None:
    """Add metrics of rewards, question format, the solver's attempts and cost to the step, and keep its episodes."""
    measured = [item.measured() for item in judged]
    for item, values, advantage in zip(judged, measured, advantages.values.tolist(), strict=True):
        step.keep(item.episode, {**values, "advantage": advantage})
    step.metrics |= {
        **mean_parts(measured),
        **measure_advantages(advantages),
        **measure_proposals(
            [item.episode for item in judged],
            [item.task.hops for item in judged],
            [item.score.valid for item in judged],
            [item.written.question for item in judged],
        ),
        **mean_of("gate/yield", [item.reward.difficulty > 0 for item in judged]),  # a group's answers must differ
        **pass_histogram([item.num_right for item in judged if item.num_attempts == num_attempts], num_attempts),
        "cost/documents": float(num_documents),
        "cost/proposer_episodes": step.metrics["proposer/episodes"],
        "cost/solver_episodes": step.metrics.get("solver/episodes", 0.0),
        "cost/valid_questions": float(sum(item.num_attempts > 0 for item in judged)),
        "cost/grpo_episodes": float(GRPO_ROLLOUTS * num_documents),
    }
