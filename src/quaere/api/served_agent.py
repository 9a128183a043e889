"""The agent of `quaere serve --index`: the solver of `quaere ask` on the event loop of a server.

agent = ServedAgent(policy, index, find_notes("warm"))
(await agent.answer("Who built the Halm bridge?", SamplingParams(temperature=0))).text
"""

import itertools
from typing import Any

from msgspec import structs

from quaere.api import answer as answers
from quaere.api.agent import choose_solver, least_confidence
from quaere.dialects.notes import Notes
from quaere.policies.sampler import SamplingParams
from quaere.records import Question, SolveTask
from quaere.rollout.episode import Job
from quaere.rollout.policy import Policy
from quaere.rollout.voting import run_voted
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.serving.model.replies import Reply


class ServedAgent:
    """Answers questions by searching an index, prompted as the model's notes say; the policy is its server's."""

    def __init__(
        self,
        policy: Policy,
        index: Index,
        notes: Notes,
        *,
        needs_guide: bool = False,
        attempts: int = 1,
        min_confidence: float | None = None,
    ) -> None:
        self._policy = policy
        self._attempts = attempts
        self._min_confidence = least_confidence(min_confidence, attempts, policy)
        self._searcher = LocalSearcher(index)
        self._min_overlap = notes.min_overlap
        self._protocol, self._limits = choose_solver(notes, needs_guide=needs_guide, limits={})
        self._numbers = itertools.count()

    async def answer(self, question: str, params: SamplingParams) -> Reply:
        """Answer a question; cancelling the call stops the model. `params.max_tokens` bounds each turn.

        Of several attempts the reply, with its number of tokens, is that of the one that was chosen.
        """
        name = f"ask-{next(self._numbers)}"
        limits = structs.replace(self._limits, turn_tokens=min(self._limits.turn_tokens, params.max_tokens))
        seed = params.seed if self._attempts == 1 else None  # else every attempt has its own
        job = Job(self._protocol, SolveTask(Question(id=name, text=question)), name, limits, seed)
        how: dict[str, Any] = {"params": params, "seed": params.seed, "attempts": self._attempts}
        (episode,) = [one async for one in run_voted(self._policy, [job], self._searcher, limits, **how)]
        answers.refuse_all_failed([episode])
        num_sampled = sum(turn.num_tokens for turn in episode.turns)
        num_tokens = sum(len(segment.token_ids) for segment in episode.segments)
        num_notes = sum(turn.note_tokens for turn in episode.turns)  # of a conversation that is in no segment
        found = answers.describe_found(episode, self._min_overlap, self._min_confidence)
        return Reply(found, num_tokens - num_sampled, num_sampled + num_notes)

    async def close(self) -> None:
        """Release the search threads; the model is not the agent's own."""
        await self._searcher.close()
