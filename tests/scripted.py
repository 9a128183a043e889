"""Sampler that follows a script, for tests: real tokens, no model.

sampler = ScriptedSampler(tokenizer, {"e1": ["<answer>Venn</answer>"]})
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from quaere.errors import SamplingFailed
from quaere.policies.sampler import Sampled, SamplingParams

Script = Sequence[str | Sequence[int] | Exception]


class ScriptedSampler:
    """Samples each session's turns from a script: a text, or ids as given. An exception in the script is raised.

    `seen` has, per session and turn, the context that was given and the ids that were returned.
    """

    def __init__(
        self,
        tokenizer: Any,
        scripts: Mapping[str, Script],
        *,
        name: str = "scripted",
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.lockstep = False
        self.seen: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
        self.sessions: set[str] = set()
        self._tokenizer = tokenizer
        self._scripts = scripts
        self._pause = pause or (lambda: asyncio.sleep(0))

    def open(self, session: str) -> None:
        """Register the session."""
        self.sessions.add(session)

    def close(self, session: str) -> None:
        """Remove the session."""
        self.sessions.discard(session)

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        """The next turn of the script, cut at `max_tokens`."""
        await self._pause()
        turns = self.seen.setdefault(session, [])
        script = self._scripts[session]
        if len(turns) >= len(script):
            raise SamplingFailed(f"the script of session {session} has no turn {len(turns)}")
        line = script[len(turns)]
        if isinstance(line, Exception):
            raise line
        ids = self._tokenizer.encode(line, add_special_tokens=False) if isinstance(line, str) else line
        cut = tuple(ids[: params.max_tokens])
        turns.append((tuple(token_ids), cut))
        return Sampled(cut, (-1.0,) * len(cut), self._stop_reason(cut, len(ids), params))

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """A log-prob of -1 for every token but the first."""
        return [[0.0] + [-1.0] * (len(token_ids) - 1) for token_ids in sequences]

    async def stop(self) -> None:
        """Do nothing."""

    def _stop_reason(self, ids: Sequence[int], length: int, params: SamplingParams) -> Any:
        if ids and ids[-1] in params.stop_token_ids:
            return "end_of_turn"
        return "stop_string" if len(ids) == length else "length"
