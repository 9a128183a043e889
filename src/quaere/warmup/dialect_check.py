"""Check of a warm-up: how well a model does held-out tasks in each dialect and role that it was taught.

    learnt = await play_held_out(policy, episodes, searcher, protocols, limits)
    learnt["evalact solver"] -> Learnt(num=10, num_answered=6, num_sound=5, num_matched=2)

The mean loss over all episodes hides a dialect that was learnt badly, so the held-out tasks of each dialect are played.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from quaere.chat.protocol import PromptStyle, Protocol
from quaere.dialects.registry import find_dialect
from quaere.dialects.roles import solver_reward
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Malformed, SolveTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import Policy
from quaere.search.searcher import Searcher
from quaere.warmup.dialects import Dialect, roles_of
from quaere.warmup.scripted_episodes import open_protocol


class Learnt(Struct, frozen=True):
    """Counts of held-out tasks of one role in one dialect: all, answered, sound in format, and correctly answered.

    An episode is sound if it was answered and each of its turns was an action of the dialect. It is matched if the
    solver's answer equals an accepted answer (exact match); episodes of other roles never count as matched.

        Learnt(num=10, num_answered=6, num_sound=5, num_matched=2).share == 0.5
    """

    num: int = 0
    num_answered: int = 0
    num_sound: int = 0
    num_matched: int = 0

    @property
    def share(self) -> float:
        """The share of sound episodes; 0 if there are no episodes.

        Dialects share the form of their answers, so a model may answer in one it was never taught, but seldom soundly.
        """
        return self.num_sound / self.num if self.num else 0.0

    def count(self, episode: Episode) -> Learnt:
        """New counts that include this episode."""
        is_answered = episode.end == "answered"
        is_sound = is_answered and not any(isinstance(turn.action, Malformed) for turn in episode.turns)
        is_matched = isinstance(episode.task, SolveTask) and solver_reward(episode) == 1
        return Learnt(
            self.num + 1, self.num_answered + is_answered, self.num_sound + is_sound, self.num_matched + is_matched
        )


class Spoken(Struct, frozen=True):
    """A role in a dialect, with the protocol (prompts and parser) to play it.

    Spoken(name="evalact solver", dialect="evalact", protocol=EvaluateSolver())
    """

    name: str
    dialect: Dialect
    protocol: Protocol


def open_spoken(dialects: Sequence[Dialect], style: PromptStyle, *, abstention: bool = False) -> dict[str, Spoken]:
    """The roles of these dialects, by the name of their protocol.

    Of the dialect score only the writer is included: the protocols of rubrics and assessments depend on the task. With
    `abstention`, solvers may abstain.
    """
    found: dict[str, Spoken] = {}
    for dialect in dialects:
        if dialect == "score":
            writer = find_dialect("report", "writer").open(style=style)
            found[writer.name] = Spoken("score solver", dialect, writer)
            continue
        for role in roles_of(dialect):
            protocol = open_protocol(role, style, dialect, abstention=abstention)
            found[protocol.name] = Spoken(f"{dialect} {role}", dialect, protocol)
    return found


async def play_held_out(
    policy: Policy,
    episodes: Sequence[Episode],
    searcher: Searcher,
    spoken: Mapping[str, Spoken],
    limits: Callable[[Dialect], Limits],
    *,
    concurrency: int = 32,
) -> dict[str, Learnt]:
    """Let the model play the tasks of these episodes with greedy decoding; returns counts by dialect and role."""
    asked = [(episode, spoken[episode.protocol]) for episode in episodes if episode.protocol in spoken]
    jobs = [Job(who.protocol, episode.task, episode.id, limits(who.dialect)) for episode, who in asked]
    greedy = SamplingParams(temperature=0.0)
    played = run_many(policy, jobs, searcher, Limits(), params=greedy, concurrency=concurrency)
    learnt = {who.name: Learnt() for who in spoken.values()}
    async for episode in played:
        name = spoken[episode.protocol].name
        learnt[name] = learnt[name].count(episode)
    return learnt


def describe_learnt(learnt: Mapping[str, Learnt]) -> list[str]:
    """The lines to print: the counts of each dialect and role, and those too weak to start training from.

    describe_learnt({"drzero solver": Learnt(10, 9, 9, 3), "evalact solver": Learnt(10, 4, 3, 1)})
    -> ["held-out tasks of drzero solver: of 10, 9 answered, 9 in the right format throughout, 3 matched",
        "held-out tasks of evalact solver: of 10, 4 answered, 3 in the right format throughout, 1 matched",
        "weak: evalact solver; teach it longer (--epochs, --episodes) or by itself"]
    """
    lines = [f"held-out tasks of {name}: {_describe(one)}" for name, one in learnt.items()]
    least = max(_WEAK, max((one.share for one in learnt.values()), default=0.0) - _BEHIND)
    if weak := [name for name, one in learnt.items() if one.num and one.share < least]:
        lines.append(f"weak: {', '.join(weak)}; teach it longer (--epochs, --episodes) or by itself")
    return lines


def _describe(one: Learnt) -> str:
    sound = f"{one.num_sound} in the right format throughout"
    return f"of {one.num}, {one.num_answered} answered, {sound}, {one.num_matched} matched" if one.num else "none"


# Below this share of sound episodes, or this far below the best dialect's, `describe_learnt` warns.
_WEAK, _BEHIND = 0.75, 0.2
