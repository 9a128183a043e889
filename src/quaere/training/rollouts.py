"""Rollouts of a training step: tasks and questions are drawn, episodes played, attempts grouped and learned from.

    tasks = draw_tasks(index, range(64), (4, 3, 2, 1), seed=7, name="i0")     # documents and hops for the proposer
    asked = draw_by_need(questions, step.number, drawing, seed=7)             # questions for the solver
    groups = await Stage(actors, searcher).attempt(step, protocol, asked, 5, limits)
    learn(step, episodes, advantages)

A draw is a function of the seed and of its number alone, so a resumed run, or a later phase that needs the same tasks,
stores nothing about what was drawn.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Protocol as Interface

import torch
from msgspec import Struct, structs

from quaere.chat.protocol import Protocol
from quaere.dialects.roles import Credit, solver_reward
from quaere.errors import TrainingStopped
from quaere.objectives.policy_gradient import Advantages
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Passage, ProposeTask, Question, SolveTask
from quaere.rewards.abstention import hide_answers
from quaere.rewards.answers import normalise_answer
from quaere.rollout.episode import Job, Limits
from quaere.rollout.policy import derive_seed
from quaere.search.searcher import Searcher
from quaere.training.actors import Played, RolePlay
from quaere.training.batches import make_sample
from quaere.training.step import Step, measure_episodes, measure_update, trace_tokens

# ------------------------------------------------------------------------------------------------- the proposer's tasks


class Passages(Interface):
    """Numbered passages, such as an index."""

    def __len__(self) -> int:
        """Number of passages."""

    def passage(self, number: int) -> Passage:
        """The passage with this number."""


def draw_tasks(
    passages: Passages, numbers: Sequence[int], hop_ratio: Sequence[int], *, seed: int, name: str, document: bool = True
) -> list[ProposeTask]:
    """The proposer's tasks with these numbers; no document is repeated before every document was used once.

    draw_tasks(index, range(2), (4, 3, 2, 1), seed=7, name="i0")
    -> [ProposeTask(id="i0-000000", document=Passage(...), hops=2), ProposeTask(id="i0-000001", ...)]
    """
    start, stride = _round_trip(len(passages), seed)
    tasks = []
    for number in numbers:
        passage = passages.passage((start + number * stride) % len(passages)) if document else None
        tasks.append(ProposeTask(f"{name}-{number:06d}", passage, draw_hops(number, hop_ratio, seed)))
    return tasks


def draw_hops(number: int, hop_ratio: Sequence[int], seed: int) -> int:
    """Number of hops of a task, from shuffled decks with exactly the given ratio, so that every batch is close to it.

    [draw_hops(number, (1, 1), seed=7) for number in range(4)] holds 1 twice and 2 twice
    """
    deck = [hops for hops, weight in enumerate(hop_ratio, start=1) for _ in range(weight)]
    dealt, card = divmod(number, len(deck))
    random.Random(derive_seed(seed, "deck", dealt)).shuffle(deck)
    return deck[card]


def _round_trip(size: int, seed: int) -> tuple[int, int]:
    """A start and a stride that visit every number below `size` once, in a pseudo-random order."""
    draw = random.Random(derive_seed(seed, "documents"))
    start = draw.randrange(size)
    while gcd(stride := draw.randrange(1, size + 1), size) != 1:
        pass
    return start, stride


# ---------------------------------------------------------------------------------------------- the solver's questions


def count_steps_with_questions(num_steps: int, num_questions: int, batch: int, max_draws: int) -> int:
    """Number of a phase's steps for which there are whole batches if each question is drawn at most `max_draws` times.

    `max_draws=0` means no limit. The result depends on the number of questions alone, so it is the same after a resume.

        count_steps_with_questions(80, num_questions=295, batch=64, max_draws=2) == 9
    """
    if not max_draws:
        return num_steps
    return min(num_steps, max_draws * num_questions // min(batch, num_questions))


class Drawing(Struct, frozen=True):
    """How a phase draws its questions: `batch` per step, of which the share `several_share` needs several searches.

    Drawing(batch=64, num_steps=26, max_draws=3, several_share=1/3)
    """

    batch: int
    num_steps: int
    max_draws: int = 0
    several_share: float = 0.0


def draw_by_need(questions: Sequence[Question], number: int, drawing: Drawing, seed: int) -> list[Question]:
    """The questions of step `number`, of which the share `several_share` needs two or more searches.

    Those questions and the others are drawn from separate shuffled rounds. The share is smaller if it would draw a
    question more often than `max_draws` (`several_a_step`).
    """
    several = [question for question in questions if question.searches > 1]
    others = [question for question in questions if question.searches <= 1]
    if not drawing.several_share or not several or not others:
        return draw_questions(questions, number, drawing.batch, seed)
    batch = min(drawing.batch, len(questions))
    rate = several_a_step(len(several), len(others), drawing)
    first, end = math.floor(number * rate), math.floor((number + 1) * rate)
    chosen = _take(several, first, end, derive_seed(seed, "several"))
    return chosen + _take(others, number * batch - first, (number + 1) * batch - end, seed)


def several_a_step(num_several: int, num_others: int, drawing: Drawing) -> Fraction:
    """Mean number of questions per step that need several searches: `several_share`, if both kinds last for all steps.

    A fraction, because a float, rounded down, would let the last step draw one of the other questions too often.

    several_a_step(900, 2000, Drawing(batch=60, num_steps=26, max_draws=3, several_share=1/3)) == 20
    several_a_step(52, 2000, Drawing(batch=60, num_steps=26, max_draws=3, several_share=1/3)) == 6
    """
    batch = min(drawing.batch, num_several + num_others)
    if batch == num_several + num_others:
        return Fraction(num_several)
    most, least = Fraction(min(batch, num_several)), Fraction(max(0, batch - num_others))
    if drawing.max_draws and drawing.num_steps:
        most = min(most, Fraction(drawing.max_draws * num_several, drawing.num_steps))
        least = max(least, batch - Fraction(drawing.max_draws * num_others, drawing.num_steps))
    return max(least, min(most, Fraction(drawing.several_share).limit_denominator(1000) * batch))


def count_distinct(questions: Sequence[Question], num_steps: int, drawing: Drawing) -> int:
    """Number of different questions in the first `num_steps` steps of a phase, as `draw_by_need` draws them.

    Computed from the place in the phase alone: in its rounds, each question comes once before any comes again.
    """
    num_several = sum(question.searches > 1 for question in questions)
    num_others, num_draws = len(questions) - num_several, num_steps * min(drawing.batch, len(questions))
    if not drawing.several_share or not num_several or not num_others:
        return min(num_draws, len(questions))
    num_drawn = math.floor(num_steps * several_a_step(num_several, num_others, drawing))
    return min(num_drawn, num_several) + min(num_draws - num_drawn, num_others)


def draw_questions(questions: Sequence[Question], number: int, batch: int, seed: int) -> list[Question]:
    """The questions of a step, from shuffled rounds over all questions.

    If there are fewer questions than `batch`, a step uses all of them.
    """
    batch = min(batch, len(questions))
    return _take(questions, number * batch, (number + 1) * batch, seed)


def _take(questions: Sequence[Question], first: int, end: int, seed: int) -> list[Question]:
    """The questions at positions `first` to `end` of endless rounds, each with all questions in a new random order."""
    places = range(first, end)
    rounds: dict[int, list[Question]] = {}
    for turn in {place // len(questions) for place in places}:
        rounds[turn] = list(questions)
        random.Random(derive_seed(seed, "round", turn)).shuffle(rounds[turn])
    chosen = [rounds[place // len(questions)][place % len(questions)] for place in places]
    return list({question.id: question for question in chosen}.values())  # places in two rounds may hold one twice


def hide_some(questions: Sequence[Question], share: float, seed: int) -> list[Question]:
    """The questions, with the answers of a random `share` of them hidden, as far as they can be (`hide_answers`)."""
    copies = {place: hidden for place, question in enumerate(questions) if (hidden := hide_answers(question))}
    num = min(len(copies), round(share * len(questions)))
    chosen = set(random.Random(seed).sample(sorted(copies), num))
    return [copies[place] if place in chosen else question for place, question in enumerate(questions)]


# ------------------------------------------------------------------------------------------------------------ attempts


def attempt_jobs(protocol: Protocol, questions: Sequence[Question], num_attempts: int, name: str) -> list[Job]:
    """`num_attempts` episodes per question; those of one question are adjacent.

    attempt_jobs(protocol, [question], 2, "i0-p3")[1].episode_id == "i0-p3-i0-000017-a1"
    """
    return [
        Job(protocol, SolveTask(question), f"{name}-{question.id}-a{number}")
        for question in questions
        for number in range(num_attempts)
    ]


def rights(attempts: Sequence[Episode], min_searches: int = 0) -> list[float]:
    """1.0 per attempt that was right with at least `min_searches` different queries that had results, else 0.0."""
    results = ((result for turn in one.turns for result in turn.results if result.hits) for one in attempts)
    queries = [{normalise_answer(result.query) for result in found} for found in results]
    return [solver_reward(one) * (len(asked) >= min_searches) for one, asked in zip(attempts, queries, strict=True)]


def count_easy(attempts: Sequence[Episode], min_searches: int) -> int:
    """Number of attempts that were right with fewer searches than `rights` asks for."""
    return int(sum(rights(attempts)) - sum(rights(attempts, min_searches)))


def group_attempts(episodes: Sequence[Episode], num_attempts: int) -> list[list[Episode]]:
    """The attempts at each question, without those in which a search failed."""
    groups = [list(episodes[first : first + num_attempts]) for first in range(0, len(episodes), num_attempts)]
    return [[episode for episode in group if not episode.search_failed] for group in groups]


# ------------------------------------------------------------------------------------------------------------- playing


@dataclass(frozen=True)
class Stage:
    """Plays the episodes of a step: the roles, and the searcher they share.

    played = await Stage(actors, searcher).play(step, "proposer", jobs, Limits())
    """

    actors: RolePlay
    searcher: Searcher

    async def play(
        self,
        step: Step,
        role: str,
        jobs: Sequence[Job],
        limits: Limits,
        *,
        searcher: Searcher | None = None,
        name: str = "",
        params: SamplingParams | None = None,
    ) -> Played:
        """Play episodes as this role and add their metrics to the step, prefixed by `name` if given, else by the role.

        Without `params`, the sampling settings of the run are used.
        """
        started = time.perf_counter()
        seed = derive_seed(step.seed, name or role)
        played = await self.actors.play(role, jobs, searcher or self.searcher, limits, seed=seed, params=params)
        step.metrics |= measure_episodes(played.episodes, time.perf_counter() - started, role=name or role)
        step.metrics[f"{name or role}/spoiled"] = float(len(played.spoiled))
        step.count_searches([*played.episodes, *played.spoiled])
        for episode in played.spoiled:
            step.keep(episode, {"episode/spoiled": 1.0})
        return played

    async def attempt(
        self, step: Step, protocol: Protocol, questions: Sequence[Question | None], num_attempts: int, limits: Limits
    ) -> list[list[Episode]]:
        """The current solver's attempts at each question, without those in which a search failed.

        The list is empty for a question None, and for every question if `num_attempts` is 0.
        """
        if not num_attempts:
            return [[] for _ in questions]
        asked = [question for question in questions if question is not None]
        played = await self.play(step, "solver", attempt_jobs(protocol, asked, num_attempts, step.name), limits)
        for episode in played.episodes:
            if not episode.search_failed:
                step.keep(episode, {"answer/exact_match": solver_reward(episode)})
        groups = iter(group_attempts(played.episodes, num_attempts))
        return [[] if question is None else next(groups) for question in questions]


# ---------------------------------------------------------------------------------------------------------- the update


def learn(
    step: Step,
    episodes: Sequence[Episode],
    advantages: Advantages,
    weigh: Callable[[Episode], Sequence[float]] | None = None,
    credits: Sequence[Sequence[Credit]] = (),
) -> None:
    """Make one update on these episodes and add its metrics to the step; no update if all advantages are 0.

    `weigh` returns a factor per token that multiplies the episode's advantage; `credits` are added for some tokens.
    """
    values = advantages.values.tolist()
    samples = [
        make_sample(episode, value, weigh(episode) if weigh else None, further)
        for episode, value, further in zip(episodes, values, credits or [()] * len(values), strict=True)
    ]
    if step.measures_update:
        step.metrics |= measure_update(step.learner, samples)
    if any(values) or any(credit.value for further in credits for credit in further):
        trace_tokens(step, samples)
        step.metrics |= step.learner.step(samples)


def shuffled(advantages: Advantages, seed: int) -> Advantages:
    """The advantages assigned to random episodes: a control experiment, in which the reward must not improve."""
    order = list(range(len(advantages.values)))
    random.Random(seed).shuffle(order)
    return structs.replace(advantages, values=advantages.values[torch.tensor(order, dtype=torch.long)])


def shuffled_credits(credits: Sequence[Sequence[Credit]], seed: int) -> list[list[Credit]]:
    """The credits with their values in random order: the same control for what tokens get besides."""
    values = [credit.value for further in credits for credit in further]
    random.Random(seed).shuffle(values)
    drawn = iter(values)
    return [[structs.replace(credit, value=next(drawn)) for credit in further] for further in credits]


def coin(seed: int, number: int) -> float:
    """A random sign, 1 or -1, by which the shuffle control multiplies an advantage that has no group to shuffle."""
    return 1.0 if derive_seed(seed, "coin", number) % 2 else -1.0


def check_finite(rewards: Sequence[float]) -> None:
    """Raise TrainingStopped if a reward is not finite, before any weight changes."""
    for number, reward in enumerate(rewards):
        if not math.isfinite(reward):
            raise TrainingStopped(f"the reward of episode {number} of the batch is not finite; no weight was changed")
