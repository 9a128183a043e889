"""A `TokenSampler` over a sampling client of the Tinker interface.

A turn ends at a stop id or at a stop string, and the interface takes one kind or the other. Ids are sent, because only
the server can stop at the end of a turn; strings are cut here, after the token in which they end, as the native engine
does. So a turn is the same as if the server had stopped there; what it sampled beyond is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from quaere.errors import SamplingFailed, TrainingStopped
from quaere.policies.native.stop_strings import StopStrings
from quaere.policies.sampler import Sampled, SamplingParams
from quaere.policies.tinker_service import TinkerService

_MAX_SEED = 2**31  # servers keep seeds as 32-bit integers


class TinkerSampler:
    """Samples from whichever client was last given to `use`; many requests are under way at once."""

    lockstep = False

    def __init__(
        self, service: TinkerService, decode: Callable[[Sequence[int]], str], *, name: str, max_positions: int = 1 << 20
    ) -> None:
        self.name = name
        self.max_positions = max_positions
        self._service = service
        self._stops = StopStrings(decode)
        self._client: Any = None

    def use(self, client: Any) -> None:
        """Sample from this client of the SDK from now on."""
        self._client = client

    def open(self, session: str) -> None:
        """Do nothing: the server keeps no sessions."""

    def close(self, session: str) -> None:
        """Do nothing: the server keeps no sessions."""

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        """Sample a turn."""
        if not token_ids:
            raise SamplingFailed("the context is empty; sampling needs at least one token")
        if len(token_ids) + params.max_tokens > self.max_positions:
            raise SamplingFailed(
                f"a context of {len(token_ids)} tokens plus {params.max_tokens} new tokens exceeds the model's context "
                f"length of {self.max_positions}"
            )
        types = self._service.types
        wanted = types.SamplingParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k or -1,
            seed=params.seed % _MAX_SEED,
            stop=list(params.stop_token_ids) or None,
        )
        prompt = types.ModelInput.from_ints(list(token_ids))
        future = self._client.sample(prompt=prompt, num_samples=1, sampling_params=wanted)
        drawn = (await self._service.wait(future)).sequences[0]
        if drawn.logprobs is None or len(drawn.logprobs) != len(drawn.tokens):
            raise TrainingStopped(f"the trainer at {self._service.name} returns no log-probs of what it samples")
        return cut_turn(drawn.tokens, drawn.logprobs, params, self._stops)

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-prob of every token given those before it; 0 for the first token."""
        return await self._score(self._client, token_ids)

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """As `score`, for many sequences at once; with `starts`, only the tokens from that position on; 0 before."""
        scored = await asyncio.gather(*(self._score(self._client, token_ids) for token_ids in sequences))
        if not starts:
            return list(scored)
        return [[0.0] * start + row[start:] for row, start in zip(scored, starts, strict=True)]

    async def stop(self) -> None:
        """Nothing is held: the SDK's threads end with the process."""

    async def _score(self, client: Any, token_ids: Sequence[int]) -> list[float]:
        prompt = self._service.types.ModelInput.from_ints(list(token_ids))
        return prompt_scores(await self._service.wait(client.compute_logprobs(prompt)), len(token_ids))


def cut_turn(tokens: Sequence[int], logprobs: Sequence[float], params: SamplingParams, stops: StopStrings) -> Sampled:
    """The tokens up to the first stop id, or the first token that completes a stop string; it is kept whole.

    cut_turn([7, 8, 2, 9], [-0.1] * 4, SamplingParams(stop_token_ids=(2,)), stops).token_ids == (7, 8, 2)
    """
    new: list[int] = []
    for token in tokens[: params.max_tokens]:
        new.append(token)
        if token in params.stop_token_ids:
            return Sampled(tuple(new), tuple(logprobs[: len(new)]), "end_of_turn")
        if params.stop and stops.just_ended(new, params.stop):
            return Sampled(tuple(new), tuple(logprobs[: len(new)]), "stop_string")
    return Sampled(tuple(new), tuple(logprobs[: len(new)]), "length")


def prompt_scores(values: Sequence[float | None] | None, num_tokens: int) -> list[float]:
    """Log-probs of a prompt with a 0 for its first token, whether or not the server has an entry for that token.

    prompt_scores([None, -0.5], 2) == prompt_scores([-0.5], 2) == [0.0, -0.5]
    """
    found = list(values or ())
    if len(found) == num_tokens - 1:
        found = [None, *found]
    if len(found) != num_tokens:
        raise TrainingStopped(f"the trainer scored {len(found)} tokens of a sequence of {num_tokens}")
    return [0.0, *(0.0 if value is None else float(value) for value in found[1:])]
