"""A whole episode: its tokens, its turns, what went wrong in it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quaere.records.actions import Action, Final, Task
from quaere.records.facts import SearchResult

Origin = Literal["prompt", "model", "environment"]
StopReason = Literal["end_of_turn", "stop_string", "length", "failed"]
Boundary = Literal["model", "protocol", "search", "limit"]
EndReason = Literal["answered", "turn_limit", "sequence_limit", "failed"]
LIMIT_ENDS: tuple[EndReason, ...] = ("turn_limit", "sequence_limit")


class Segment(Struct, frozen=True):
    """A run of tokens with one origin. The concatenated ids of an episode's segments are what the sampler saw.

    Only tokens the model sampled carry loss; they alone have log-probs.

        Segment(origin="model", token_ids=(1780, 29, 2), logprobs=(-0.1, -1.3, -0.02), loss_mask=(True, True, True))
    """

    origin: Origin
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[bool, ...]


class Failure(Struct, frozen=True):
    """Something that went wrong, kept as data with the boundary it came from.

    Failure(boundary="search", kind="timeout", message="the retriever did not answer within 10 s")
    """

    boundary: Boundary
    kind: str
    message: str


class Turn(Struct, frozen=True):
    """One turn: what the policy wrote, how it was read, and what the environment answered.

    `results` and `reply` are what was shown: where the reply was cut, they end there. `failure` says what went wrong in
    it, if anything did: the policy failed, its turn could not be read, the search could not be carried out, a limit was
    met. What was written are the tokens `[start, start + num_tokens)` of the episode; those from `acts_at` on are its
    action, where the protocol marks it.

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
        """Was it a search that could not be carried out?"""
        return self.failure is not None and self.failure.boundary == "search"


class Episode(Struct, frozen=True):
    """A whole episode: a policy wrote turns and the environment answered, until an answer or a limit.

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
        """Every token in order: what the sampler saw and sampled."""
        return tuple(token for segment in self.segments for token in segment.token_ids)

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        """Per token of `token_ids`: did the model sample it?"""
        return tuple(flag for segment in self.segments for flag in segment.loss_mask)

    @property
    def search_failed(self) -> bool:
        """Did a search fail in it? Then nothing it did or did not find can be held against anybody."""
        return any(turn.search_failed for turn in self.turns)

    @property
    def num_searches(self) -> int:
        """How many queries were sent to the search engine and answered."""
        return sum(len(turn.results) for turn in self.turns)
