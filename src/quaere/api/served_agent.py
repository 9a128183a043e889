"""The agent of `quaere serve --index`: the solver of `quaere ask` on the event loop of a server.

agent = ServedAgent(policy, index, find_notes("warm"))
(await agent.answer("Who built the Halm bridge?", SamplingParams(temperature=0))).text
"""

import itertools

from msgspec import structs

from quaere.api import answer as answers
from quaere.api.agent import choose_solver
from quaere.dialects.notes import Notes
from quaere.policies.sampler import SamplingParams
from quaere.records import Question, SolveTask
from quaere.rollout.episode import run_episode
from quaere.rollout.policy import Policy
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.serving.model.replies import Reply


class ServedAgent:
    """Answers questions by searching an index, prompted as the model's notes say; the policy is its server's."""

    def __init__(self, policy: Policy, index: Index, notes: Notes, *, needs_guide: bool = False) -> None:
        self._policy = policy
        self._searcher = LocalSearcher(index)
        self._min_overlap = notes.min_overlap
        self._protocol, self._limits = choose_solver(notes, needs_guide=needs_guide, limits={})
        self._numbers = itertools.count()

    async def answer(self, question: str, params: SamplingParams) -> Reply:
        """Answer a question; cancelling the call stops the model. `params.max_tokens` bounds each turn."""
        name = f"ask-{next(self._numbers)}"
        episode = await run_episode(
            self._policy,
            self._protocol,
            self._searcher,
            SolveTask(Question(id=name, text=question)),
            structs.replace(self._limits, turn_tokens=min(self._limits.turn_tokens, params.max_tokens)),
            episode_id=name,
            seed=params.seed,
            params=params,
        )
        answers.refuse_all_failed([episode])
        num_sampled = sum(turn.num_tokens for turn in episode.turns)
        num_tokens = sum(len(segment.token_ids) for segment in episode.segments)
        num_notes = sum(turn.note_tokens for turn in episode.turns)  # of a conversation that is in no segment
        found = answers.describe_found(episode, self._min_overlap)
        return Reply(found, num_tokens - num_sampled, num_sampled + num_notes)

    async def close(self) -> None:
        """Release the search threads; the model is not the agent's own."""
        await self._searcher.close()
