"""A solver's own right episodes on checked questions, to learn from (rejection sampling).

    own = await play_own(policy, searcher, questions, "eve", ToolCallSolver(evidence=True), Limits())
    own.lessons.episodes    # at most one for each question: right, in form, and shown what the answer rests on
    own.unsure              # questions that not every attempt answered right: what reinforcement can learn from

Nothing in them is written by an oracle or a teacher, and nothing is labelled: what is right was checked against the
person's own documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, zip_longest

from msgspec import Struct, structs

from quaere.chat.protocol import Protocol
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Evidence, Search
from quaere.rollout.episode import Limits
from quaere.rollout.many import run_many
from quaere.rollout.policy import Policy
from quaere.search.searcher import Searcher
from quaere.training.rollouts import attempt_jobs, group_attempts, rights
from quaere.warmup.dialects import Dialect
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.scripted_episodes import Demonstrations, judge
from quaere.worlds.dice import Dice


class OwnEpisodes(Struct, frozen=True):
    """What a solver's attempts are good for: episodes to imitate, and questions to practise on.

    An unsure question has the share of right attempts among its scores, as `solved`.

        OwnEpisodes(lessons=Demonstrations(...), unsure=[CheckedQuestion(...)])
    """

    lessons: Demonstrations
    unsure: list[CheckedQuestion]


async def play_own(
    policy: Policy,
    searcher: Searcher,
    questions: Sequence[CheckedQuestion],
    dialect: Dialect,
    protocol: Protocol,
    limits: Limits,
    *,
    attempts: int = 4,
    seed: int = 0,
    concurrency: int = 32,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> OwnEpisodes:
    """The model's episodes on each question: the shortest good one is kept, others are counted by why they are not."""
    jobs = attempt_jobs(protocol, [question.to_question() for question in questions], attempts, "own")
    episodes: list[Episode] = []
    async for episode in run_many(
        policy, jobs, searcher, limits, seed=seed, params=SamplingParams(temperature=1.0), concurrency=concurrency
    ):
        episodes.append(episode)
        on_episode(episode)
    own = OwnEpisodes(Demonstrations(), [])
    for question, group in zip(questions, group_attempts(episodes, attempts), strict=True):
        solved = sum(rights(group)) / len(group) if group else 1.0  # where every search failed nothing is known
        good = [episode for episode in group if not _note_fault(episode, question, dialect, own.lessons)]
        if good:
            own.lessons.episodes.append(min(good, key=lambda episode: len(episode.turns)))
        if solved < 1:
            own.unsure.append(structs.replace(question, scores=question.scores | {"solved": solved}))
    return own


def draw_evenly(questions: Iterable[CheckedQuestion], num: int, seed: int) -> list[CheckedQuestion]:
    """`num` questions at most, as many of each number of facts as there are: those of one fact are far more numerous.

    draw_evenly([one_a, one_b, one_c, two], 3, seed=0) -> [one_b, two, one_a]
    """
    by_facts: dict[int, list[CheckedQuestion]] = {}
    for question in questions:
        by_facts.setdefault(question.facts, []).append(question)
    dice = Dice(seed, "evenly")
    for _, group in sorted(by_facts.items()):
        dice.shuffle(group)
    rounds = zip_longest(*(group for _, group in sorted(by_facts.items())))
    return [question for question in chain.from_iterable(rounds) if question is not None][:num]


def count_searches(episode: Episode) -> int:
    """How many queries were carried out."""
    return sum(len(turn.results) for turn in episode.turns if isinstance(turn.action, Search))


def was_shown(episode: Episode, evidence: Evidence) -> bool:
    """True if a search result held the sentence."""
    hits = chain.from_iterable(result.hits for turn in episode.turns for result in turn.results)
    return any(hit.passage.doc_id == evidence.doc_id and evidence.text in hit.passage.text for hit in hits)


def _note_fault(episode: Episode, question: CheckedQuestion, dialect: Dialect, played: Demonstrations) -> str:
    """Why an episode is no lesson, counted; "" if it is one."""
    fault = judge(episode, "solver", dialect)
    if not fault and count_searches(episode) < question.searches:
        fault = "fewer searches than needed"
    if not fault and not all(was_shown(episode, evidence) for evidence in question.deciding):
        fault = "the answer rests on nothing shown"
    if fault:
        played.dropped[fault] += 1
    return fault
