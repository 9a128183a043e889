"""Episodes of written text as the tokens a policy would have seen and sampled.

The text of a demonstration is nobody's sampled text, so encoding it is right; everything else (prompt, joints, replies,
masks, limits) comes from `run_episode` itself, and so is exactly what the policy will meet when it writes its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from quaere.chat.prompt_style import PromptStyle
from quaere.chat.protocol import Protocol
from quaere.chat.renderer import Renderer
from quaere.dialects import registry
from quaere.dialects.registry import find_dialect, find_taught
from quaere.dialects.solver import solver_reward
from quaere.errors import BadInput, SamplingFailed
from quaere.policies.sampler import Sampled, SamplingParams
from quaere.records import Episode, Task, Turn
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.search.searcher import Searcher
from quaere.training.phases.proposals import read_proposal
from quaere.warmup.dialects import Dialect, Role, cites, roles_of
from quaere.warmup.quotes import find_misquote

Script = Callable[[Sequence[Turn], str], str]
"""The next turn's text, from the turns so far and what the context gained since the last one (at first: all of it).

It gives up by raising SamplingFailed."""


class Attempt(Struct, frozen=True):
    """A demonstration to be played: what to do, who writes it in which protocol, and how to tell whether it is good.

    `find_fault` says in a few words why an episode should be dropped, and "" if it should not.

        Attempt(id="solver-2-w1-q00000", task=SolveTask(...), script=..., protocol=ToolCallSolver(), find_fault=...)
    """

    id: str
    task: Task
    script: Script
    protocol: Protocol
    find_fault: Callable[[Episode], str]


class Demonstrations(Struct, frozen=True):
    """Episodes worth learning from, and how many were not, by reason.

    Demonstrations(episodes=[Episode(...)], dropped=Counter({"not found": 12}))
    """

    episodes: list[Episode] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


class _Writer:
    """A token sampler that writes one episode after a script."""

    lockstep = False

    def __init__(self, name: str, renderer: Renderer, script: Script) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self._renderer = renderer
        self._script = script
        self._num_seen = 0

    def open(self, session: str) -> None:
        """There is only one."""

    def close(self, session: str) -> None:
        """Nothing is held."""

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        """Encode what the script says; it ends with a stop string, as a policy's turn would."""
        text = self._script(self.turns, self._renderer.decode(token_ids[self._num_seen :]))
        self._num_seen = len(token_ids)
        if not text.endswith(params.stop):
            raise SamplingFailed("a demonstrated turn must end with a stop string")
        ids = tuple(self._renderer.tokenizer.encode(text, add_special_tokens=False))
        if set(ids) & set(params.stop_token_ids):
            raise SamplingFailed("a demonstrated turn holds a control token")
        cut = ids[: params.max_tokens]
        # Nobody sampled these, so nobody knows how likely they were.
        return Sampled(cut, (0.0,) * len(cut), "stop_string" if cut == ids else "length")

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """As above."""
        return [0.0] * len(token_ids)

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """As `score`, one after another."""
        return [await self.score(token_ids) for token_ids in sequences]

    async def stop(self) -> None:
        """Nothing is held."""


async def demonstrate(
    task: Task,
    script: Script,
    searcher: Searcher,
    renderer: Renderer,
    protocol: Protocol,
    limits: Limits,
    *,
    episode_id: str,
    name: str,
) -> Episode:
    """Play one episode after a script, which sees every turn with its real results before it writes the next."""
    writer = _Writer(name, renderer, script)
    policy = TokenPolicy(writer, renderer)
    return await run_episode(
        policy, protocol, searcher, task, limits, episode_id=episode_id, on_turn=writer.turns.append
    )


def open_protocol(role: Role, style: PromptStyle, dialect: Dialect = "drzero") -> Protocol:
    """The protocol a role speaks.

    open_protocol("solver", "brief", "eve").name == "eve-solver"
    open_protocol("solver", "brief", "evalrar").name == "evalrar-solver"
    """
    if role not in roles_of(dialect):
        raise BadInput(f"{dialect} has no {role}")
    if dialect == "score":
        raise BadInput("score has protocols that depend on the task; see `report_lessons.py`")
    taught = find_taught(dialect)
    if role == "proposer":
        return find_dialect(taught.dialect, role).open(style=style, evidence=taught.evidence)
    return registry.open_protocol(taught.dialect, style=style, evidence=taught.evidence)


def judge(episode: Episode, role: Role, dialect: Dialect) -> str:
    """Why an episode should not be learnt from, in a few words; "" if all of it checks out, as its dialect has it.

    judge(episode, "proposer", "eve") == "the evidence was not shown"
    """
    fault = find_fault(episode, role)
    if not fault and cites(dialect):
        fault = find_misquote(episode)
    if fault or role != "solver":
        return fault
    demonstration = find_dialect(find_taught(dialect).dialect, role).demonstration
    return demonstration.find_fault(episode) if demonstration else ""


def find_fault(episode: Episode, role: Role) -> str:
    """Why an episode should not be learnt from, in a few words; "" if it kept to the protocol and its answer is right.

    find_fault(episode, "solver") == "wrong answer"
    """
    failure = next((turn.failure for turn in episode.turns if turn.failure is not None), None)
    if failure is not None:
        return failure.message if failure.boundary == "model" else f"{failure.boundary}: {failure.kind}"
    if episode.end != "answered":
        return episode.end
    if role == "solver":
        return "" if solver_reward(episode) else "wrong answer"
    score = read_proposal(episode).score
    if not score.valid:
        return "the question is not valid"
    if score.tool < 1:
        return "too few searches"
    return "" if score.answer > 0 else "the answer was not found"
