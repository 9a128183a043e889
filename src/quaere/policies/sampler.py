"""The two interfaces of policies, `TokenSampler` and `ChatSampler`, and code that their implementations share.

A `TokenSampler` takes and returns token ids; only such a sampler can be trained. A `ChatSampler` takes messages and
returns text; it is used for asking, judging and teaching.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Protocol

from msgspec import Struct

from quaere.errors import SamplingFailed
from quaere.records import StopReason


class SamplingParams(Struct, frozen=True):
    """Sampling parameters of one turn. `temperature=0` is greedy; `top_k=0` and `top_p=1` disable these cuts.

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
    """Sampled ids, and the log-prob of each under the model itself (temperature 1, without top-k and top-p).

    Sampled(token_ids=(1780, 2), logprobs=(-0.1, -0.02), stop_reason="end_of_turn")
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason


def check_context(token_ids: Sequence[int], params: SamplingParams, max_positions: int) -> None:
    """Raise `SamplingFailed` if a context is empty, or too long for the turn that is to follow it."""
    if not token_ids:
        raise SamplingFailed("the context is empty; sampling needs at least one token")
    if len(token_ids) + params.max_tokens > max_positions:
        raise SamplingFailed(
            f"a context of {len(token_ids)} tokens plus {params.max_tokens} new tokens exceeds the model's context "
            f"length of {max_positions}"
        )


class TokenSampler(Protocol):
    """A policy that takes and returns token ids.

    A session is the conversation of one episode. `open` registers it, so that an engine can wait for it or keep its KV
    cache; `close` ends it and frees its resources. `sample` takes the *whole* context of the session each time. In
    `lockstep` a batch starts only when every open session has requested its turn, so sessions must be opened together.
    """

    name: str
    lockstep: bool

    def open(self, session: str) -> None:
        """Register a session before its first turn."""

    def close(self, session: str) -> None:
        """End a session; closing one that is not open does nothing."""

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        """Sample the next turn after the whole context `token_ids`."""

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """Per sequence, the log-prob of every token given those before it; 0 for the first and before `starts`."""

    async def stop(self) -> None:
        """Release threads, memory and connections."""


class ChatReply(Struct, frozen=True):
    """A reply of an endpoint.

    ChatReply(text="<answer>Orsolya Venn</answer>", stop_reason="end_of_turn", num_tokens=9)
    """

    text: str
    stop_reason: StopReason
    num_tokens: int = 0


class ChatSampler(Protocol):
    """A policy that takes messages, `[{"role": "user", "content": "..."}]`, and returns text."""

    name: str

    async def reply(self, messages: Sequence[Mapping[str, str]], params: SamplingParams) -> ChatReply:
        """Write the next assistant message."""

    async def stop(self) -> None:
        """Release threads, memory and connections."""


# --------------------------------------------------------------------------------------------------------- stop strings


class StopStrings:
    """Finds stop strings at the end of the sampled tokens, using the tokenizer's `decode`.

    StopStrings(tokenizer.decode).just_ended([60, 1250, 62], ("</answer>",))
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._piece = cache(lambda token: decode([token]))

    def find_reason(self, tokens: list[int], params: SamplingParams, num_prompt: int = 0) -> StopReason | None:
        """Why a turn ends with its newest token; None if it goes on. The turn begins after `num_prompt` tokens."""
        if tokens[-1] in params.stop_token_ids:
            return "end_of_turn"
        if params.stop and self.just_ended(tokens, params.stop, num_prompt):
            return "stop_string"
        return "length" if len(tokens) - num_prompt >= params.max_tokens else None

    def just_ended(self, tokens: list[int], stop: tuple[str, ...], num_prompt: int = 0) -> bool:
        """True if a stop string has just appeared. It may end inside the last token, which is kept whole.

        A token is at least one byte of text, so a tail of as many tokens as the longest string has bytes contains any
        string that the newest token completes; a few more keep a character cut at the front from mattering.
        """
        if not self._may_end(tokens[-1], stop):
            return False
        longest = max(len(text.encode()) for text in stop)
        tail = self._decode(tokens[max(num_prompt, len(tokens) - longest - 4) :])
        return any(text in tail for text in stop)

    def _may_end(self, token: int, stop: tuple[str, ...]) -> bool:
        """True if this token could complete a stop string.

        Each token is decoded once and cached; decoding a tail for every row and step would take much of a fast step. A
        last character of several bytes may be split over two tokens, and a tokenizer may drop a lone space: in these
        cases nothing is ruled out.
        """
        lasts = _last_characters(stop)
        return lasts is None or not lasts.isdisjoint(self._piece(token))


@lru_cache(maxsize=64)
def _last_characters(stop: tuple[str, ...]) -> frozenset[str] | None:
    """The characters with which stop strings end; None if one of them does not show which token completes it."""
    lasts = frozenset(text[-1] for text in stop)
    return lasts if all(last.isascii() and not last.isspace() for last in lasts) else None


def cut_turn(tokens: Sequence[int], logprobs: Sequence[float], params: SamplingParams, stops: StopStrings) -> Sampled:
    """The tokens up to the first stop id, or the first token that completes a stop string; it is kept whole.

    cut_turn([7, 8, 2, 9], [-0.1] * 4, SamplingParams(stop_token_ids=(2,)), stops).token_ids == (7, 8, 2)
    """
    new: list[int] = []
    for token in tokens[: params.max_tokens]:
        new.append(token)
        if reason := stops.find_reason(new, params):
            return Sampled(tuple(new), tuple(logprobs[: len(new)]), reason)
    return Sampled(tuple(new), tuple(logprobs[: len(new)]), "length")
