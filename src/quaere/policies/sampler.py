"""The two ways to ask a policy for text. Everything above this floor knows only these.

A `TokenSampler` takes token ids and gives token ids back; only such a sampler can be trained. A `ChatSampler` takes
messages and gives text back; it serves asking, judging and teaching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from quaere.records import StopReason


class SamplingParams(Struct, frozen=True):
    """How to sample one turn. `temperature=0` is greedy; `top_k=0` and `top_p=1` switch the cut off.

    SamplingParams(max_tokens=256, temperature=1.0, stop=("</answer>",), seed=7)
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0


class Sampled(Struct, frozen=True):
    """What was sampled: ids, and per id its log-prob under the model itself (temperature 1, nothing cut off).

    Sampled(token_ids=(1780, 2), logprobs=(-0.1, -0.02), stop_reason="end_of_turn")
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason


class TokenSampler(Protocol):
    """Token in, token out.

    A session is one episode's conversation. `open` announces it, so that an engine may wait for it or keep its cache;
    `close` ends it and frees what it held. `sample` takes the *whole* context of the session each time. In `lockstep`
    a batch starts only when every open session has asked for its turn, so sessions must be opened together.
    """

    name: str
    lockstep: bool

    def open(self, session: str) -> None:
        """Announce a session before its first turn."""
        ...

    def close(self, session: str) -> None:
        """End a session; closing one that is not open does nothing."""
        ...

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        """Sample the next turn after the whole context `token_ids`."""
        ...

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-prob of every token given those before it; the first one's is 0."""
        ...

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """As `score`, for many sequences at once; with `starts`, only the tokens from there on, and 0 before."""
        ...

    async def stop(self) -> None:
        """Let go of threads, memory and connections."""
        ...


class ChatReply(Struct, frozen=True):
    """What an endpoint wrote.

    ChatReply(text="<answer>Orsolya Venn</answer>", stop_reason="end_of_turn", num_tokens=9)
    """

    text: str
    stop_reason: StopReason
    num_tokens: int = 0


class ChatSampler(Protocol):
    """Messages in, text out: `[{"role": "user", "content": "..."}]`."""

    name: str

    async def reply(self, messages: Sequence[Mapping[str, str]], params: SamplingParams) -> ChatReply:
        """Write the next assistant message."""
        ...

    async def stop(self) -> None:
        """Let go of threads, memory and connections."""
        ...
