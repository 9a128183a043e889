"""Episodes: their tokens, turns and failures."""

from __future__ import annotations

from itertools import chain
from typing import Literal

from msgspec import Struct

from quaere.records.actions import Action, Final, Task
from quaere.records.passages import SearchResult

Origin = Literal["prompt", "model", "environment"]
StopReason = Literal["end_of_turn", "stop_string", "length", "failed"]
Boundary = Literal["model", "protocol", "search", "limit"]
EndReason = Literal["answered", "turn_limit", "sequence_limit", "failed"]
LIMIT_ENDS: tuple[EndReason, ...] = ("turn_limit", "sequence_limit")


class Segment(Struct, frozen=True):
    """A run of tokens with one origin. The segments' ids, concatenated, are the episode's token sequence.

    Only tokens sampled by the model carry loss and have log-probs.

        Segment(origin="model", token_ids=(1780, 29, 2), logprobs=(-0.1, -1.3, -0.02), loss_mask=(True, True, True))
    """

    origin: Origin
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[bool, ...]


class Failure(Struct, frozen=True):
    """A failure recorded as data: its boundary is the part of the system that it came from.

    Failure(boundary="search", kind="timeout", message="the retriever did not answer within 10 s")
    """

    boundary: Boundary
    kind: str
    message: str


class Turn(Struct, frozen=True):
    """One turn: the policy's text, the action read from it, and the environment's reply.

    `results` and `reply` hold only what the policy was shown: where the reply was cut, both end there. `failure` is set
    if the policy failed, the turn could not be read, the search failed or a limit was reached. The policy's tokens are
    `[start, start + num_tokens)` of the episode's tokens; the action begins at `acts_at` where the protocol marks it.

    Turn(index=0, text="<tool_call>...</tool_call>", action=Search(queries=("Halm bridge",)), stop_reason="stop_string",
         results=(SearchResult(...),), reply="[1] The Halm bridge ...", num_tokens=23, start=212, acts_at=220)
    """

    index: int
    text: str
    action: Action
    stop_reason: StopReason
    results: tuple[SearchResult, ...] = ()
    reply: str = ""
    failure: Failure | None = None
    num_tokens: int = 0
    start: int = 0
    acts_at: int = 0
    sample_s: float = 0.0
    search_s: float = 0.0

    @property
    def search_failed(self) -> bool:
        """True if the turn's search failed."""
        return self.failure is not None and self.failure.boundary == "search"


class Episode(Struct, frozen=True):
    """An episode: a policy's turns and the environment's replies, until an answer or a limit.

    Episode(id="ask-0", task=SolveTask(...), protocol="drzero-solver", model="smollm2-135m", seed=7,
            segments=(Segment(origin="prompt", ...), Segment(origin="model", ...)), turns=(Turn(...),),
            outcome=Answer(text="Orsolya Venn"), end="answered")
    """

    id: str
    task: Task
    protocol: str
    model: str
    seed: int
    segments: tuple[Segment, ...]
    turns: tuple[Turn, ...]
    outcome: Final | None
    end: EndReason

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All token ids in order: prompts, sampled turns and replies."""
        return tuple(chain.from_iterable(segment.token_ids for segment in self.segments))

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        """Per token of `token_ids`: True if the model sampled it."""
        return tuple(chain.from_iterable(segment.loss_mask for segment in self.segments))

    @property
    def search_failed(self) -> bool:
        """True if any search of the episode failed; then its result says nothing about the policy or the question."""
        return any(turn.search_failed for turn in self.turns)

    @property
    def num_searches(self) -> int:
        """Number of queries that the search engine answered."""
        return sum(len(turn.results) for turn in self.turns)
