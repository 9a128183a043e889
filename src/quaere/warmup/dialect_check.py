"""Completion check: the share of held-out tasks that a warmed-up model finishes, per dialect and role.

    shares = await play_held_out(policy, episodes, searcher, protocols, limits)
    shares["evalact solver"] -> Answered(num_answered=6, num=10)

The mean loss over all episodes hides a dialect that was learnt badly, so the held-out tasks of each dialect are played.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from quaere.chat.prompt_style import PromptStyle
from quaere.chat.protocol import Protocol
from quaere.dialects.registry import find_dialect
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode
from quaere.rollout.episode import Limits
from quaere.rollout.many import Job, run_many
from quaere.rollout.policy import Policy
from quaere.search.searcher import Searcher
from quaere.warmup.dialects import Dialect, roles_of
from quaere.warmup.scripted_episodes import open_protocol


class Answered(Struct, frozen=True):
    """The number of held-out tasks of a dialect that were finished, of all that were played.

    Answered(num_answered=6, num=10).share == 0.6
    """

    num_answered: int = 0
    num: int = 0

    @property
    def share(self) -> float:
        """Finished tasks over all tasks; 0 if there are none."""
        return self.num_answered / self.num if self.num else 0.0


class Spoken(Struct, frozen=True):
    """A role of a dialect with its protocol.

    Spoken(name="evalact solver", dialect="evalact", protocol=EvaluateSolver())
    """

    name: str
    dialect: Dialect
    protocol: Protocol


def open_spoken(dialects: Sequence[Dialect], style: PromptStyle) -> dict[str, Spoken]:
    """The roles of these dialects, by the name of their protocol.

    Of score only the writer is included: the protocols of rubrics and assessments depend on the task.
    """
    found: dict[str, Spoken] = {}
    for dialect in dialects:
        if dialect == "score":
            writer = find_dialect("report", "writer").open(style=style)
            found[writer.name] = Spoken("score solver", dialect, writer)
            continue
        for role in roles_of(dialect):
            protocol = open_protocol(role, style, dialect)
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
) -> dict[str, Answered]:
    """Play the tasks of these episodes with greedy decoding; the number finished, by dialect and role."""
    asked = [(episode, spoken[episode.protocol]) for episode in episodes if episode.protocol in spoken]
    jobs = [Job(who.protocol, episode.task, episode.id, limits(who.dialect)) for episode, who in asked]
    greedy = SamplingParams(temperature=0.0)
    played = run_many(policy, jobs, searcher, Limits(), params=greedy, concurrency=concurrency)
    shares = {who.name: Answered() for who in spoken.values()}
    names = iter([who.name for _, who in asked])
    async for episode in played:
        name = next(names)
        before = shares[name]
        shares[name] = Answered(before.num_answered + (episode.end == "answered"), before.num + 1)
    return shares


def describe_answered(shares: Mapping[str, Answered]) -> list[str]:
    """The lines to print: the share of each dialect and role, and those too weak to start training from.

    describe_answered({"drzero solver": Answered(9, 10), "evalact solver": Answered(4, 10)})
    -> ["answered of the held-out tasks: drzero solver 9 of 10, evalact solver 4 of 10",
        "weak: evalact solver; teach it longer (--epochs, --episodes) or by itself"]
    """
    said = [f"{name} {one.num_answered} of {one.num}" if one.num else f"{name} none" for name, one in shares.items()]
    lines = [f"answered of the held-out tasks: {', '.join(said)}"]
    if weak := [name for name, one in shares.items() if one.num and one.share < _WEAK]:
        lines.append(f"weak: {', '.join(weak)}; teach it longer (--epochs, --episodes) or by itself")
    return lines


_WEAK = 0.75  # below this share of finished episodes, `describe_answered` warns
