"""The growing context of one episode, for token samplers and for text endpoints.

An episode calls only `write` (the policy writes a turn) and `answer` (the environment's message is appended). A
`TokenConversation` keeps every token with its origin. A `ChatConversation` keeps messages only, so its episodes cannot
be trained on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol as Interface

from msgspec import Struct, structs

from quaere.chat.call_markup import Reading
from quaere.chat.messages import Message, as_chat
from quaere.chat.protocol import CALL_STOP
from quaere.chat.renderer import Renderer
from quaere.chat.tags import THOUGHT, has_unclosed
from quaere.policies.sampler import ChatSampler, SamplingParams, TokenSampler
from quaere.records import Origin, Segment, StopReason
from quaere.rollout.seeds import derive_seed


class Written(Struct, frozen=True):
    """A turn of the policy: text (including the prefix that opened it), stop reason and length in tokens.

    The text is in the form that dialects read, whatever markup the model has for thoughts and calls. The length counts
    tokens that ended a thought for the policy.

    Written(text="<answer>Venn</answer>", stop_reason="stop_string", num_tokens=7)
    """

    text: str
    stop_reason: StopReason
    num_tokens: int


class Conversation(Interface):
    """The conversation of one episode in progress."""

    @property
    def num_tokens(self) -> int:
        """Length of the context in tokens; 0 if the tokenizer is unknown."""
        ...

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All tokens so far, grouped by origin."""
        ...

    def open_turn(self, prefix: str) -> None:
        """Start the policy's next turn with `prefix`, which the environment provides ("" for none)."""
        ...

    def write_for(self, message: Message) -> Written:
        """Append a whole turn that the environment writes in the policy's place; nothing of it was sampled."""
        ...

    async def write(self, params: SamplingParams, thought_tokens: int = 0) -> Written:
        """Sample the policy's turn and append it to the context.

        With `thought_tokens`, a thought that goes on for longer at the start of the turn is ended.
        """
        ...

    def locate(self, offset: int) -> int:
        """Index in the episode's tokens of the token that contains character `offset` of the last written turn."""
        ...

    def count(self, message: Message, max_tokens: int) -> int:
        """Number of tokens that `message`, cut to `max_tokens`, would add to the context now."""
        ...

    def answer(self, message: Message, max_tokens: int, room: int) -> Message | None:
        """Append the environment's message, cut to `max_tokens`, and return it as it was shown.

        Returns None and leaves the context unchanged if the message does not fit into `room` tokens.
        """
        ...


class TokenConversation:
    """A conversation as token ids: sampled ids are appended unchanged, and sampled text is never re-encoded."""

    def __init__(self, session: str, sampler: TokenSampler, renderer: Renderer, prompt: Sequence[int]) -> None:
        self._session = session
        self._sampler = sampler
        self._renderer = renderer
        self._context: list[int] = []
        self._segments: list[Segment] = []
        self._prefix = renderer.opened
        self._turn_start = 0
        self._reading = Reading("")
        self._append("prompt", prompt)

    @property
    def num_tokens(self) -> int:
        """Length of the context in tokens."""
        return len(self._context)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All tokens so far, grouped by origin."""
        return tuple(self._segments)

    def open_turn(self, prefix: str) -> None:
        """Append `prefix` with the origin "environment": the policy sees it and is not trained on it."""
        # A thought that the template opened is closed before a prefix; being empty, it is no part of the turn's text.
        self._prefix = prefix or self._renderer.opened
        if prefix:
            self._append("environment", self._renderer.encode_parts((self._renderer.begin_turn(prefix),)))

    def write_for(self, message: Message) -> Written:
        """Append the turn with the origin "environment", control tokens of quoted parts left out as anywhere."""
        self.open_turn("")
        self._append("environment", self._renderer.encode_parts((self._renderer.turn_start, *message.parts)))
        return Written(message.text, "stop_string", 0)

    async def write(self, params: SamplingParams, thought_tokens: int = 0) -> Written:
        """Sample a turn and append its ids to the context unchanged."""
        stop = params.stop + (self._renderer.call_stop if CALL_STOP in params.stop else ())
        params = structs.replace(params, stop=stop, stop_token_ids=self._renderer.stop_token_ids)
        self._turn_start = len(self._context)
        if 0 < thought_tokens < params.max_tokens:
            reason, goes_on = await self._think(params, thought_tokens)
            left = params.max_tokens - (len(self._context) - self._turn_start)
            if not goes_on or left < 1:
                return self._written(reason)
            params = structs.replace(params, max_tokens=left, seed=derive_seed(params.seed, "after thought"))
        return self._written(await self._sample(params))

    async def _think(self, params: SamplingParams, max_tokens: int) -> tuple[StopReason, bool]:
        """Sample up to the end of a thought, and end it after `max_tokens`; the flag says that the turn goes on.

        A request ends exactly where a thought does, because a stop string is not seen over two requests.
        """
        stop = (*params.stop, *self._renderer.thought_stop)
        reason = await self._sample(structs.replace(params, max_tokens=max_tokens, stop=stop))
        if reason == "length":
            if has_unclosed(self._read().text, THOUGHT):
                self._append("environment", self._renderer.encode_parts((self._renderer.thought_end,)))
            return reason, True
        text = self._renderer.read_turn(self._context[self._turn_start :])
        is_thought = any(end in text for end in self._renderer.thought_stop)
        return reason, reason == "stop_string" and is_thought and not any(end in text for end in params.stop)

    async def _sample(self, params: SamplingParams) -> StopReason:
        sampled = await self._sampler.sample(self._session, tuple(self._context), params)
        self._append("model", sampled.token_ids, sampled.logprobs)
        return sampled.stop_reason

    def _read(self) -> Reading:
        return self._renderer.read_markup(self._prefix + self._renderer.read_turn(self._context[self._turn_start :]))

    def _written(self, reason: StopReason) -> Written:
        self._reading = self._read()
        return Written(self._reading.text, reason, len(self._context) - self._turn_start)

    def locate(self, offset: int) -> int:
        """Index of the token that contains character `offset`, by binary search over decoded prefixes of the turn.

        `offset` counts the prefix the turn was opened with, which was not sampled.
        """
        written = self._context[self._turn_start :]
        counts, wanted = range(len(written)), self._reading.find_origin(offset) - len(self._prefix)

        def length(count: int) -> int:
            # An incomplete UTF-8 sequence decodes to up to three replacement characters. Without the strip, the
            # decoded length would not grow monotonically and the binary search could miss.
            return len(self._renderer.decode(written[:count]).rstrip("\ufffd"))

        before = bisect_right(counts, wanted, key=length) - 1
        return len(self._context) - len(written) + max(0, before)

    def count(self, message: Message, max_tokens: int) -> int:
        """Number of tokens of the message together with the template's tokens between turns."""
        return len(self._renderer.reply(message, self._context[-1], max_tokens))

    def answer(self, message: Message, max_tokens: int, room: int) -> Message | None:
        """Append the template's tokens between turns and the message, cut to `max_tokens`; None if it does not fit."""
        ids = self._renderer.reply(message, self._context[-1], max_tokens)
        if len(ids) > room:
            return None
        self._append("environment", ids)
        return self._renderer.cut(message, max_tokens)

    def _append(self, origin: Origin, ids: Sequence[int], logprobs: Sequence[float] = ()) -> None:
        self._context += ids
        mask = (origin == "model",) * len(ids)
        self._segments.append(Segment(origin, tuple(ids), tuple(logprobs), mask))


class ChatConversation:
    """A conversation as chat messages. It has no token ids and therefore no segments."""

    segments: tuple[Segment, ...] = ()
    num_tokens = 0  # unknown: only the endpoint has the tokenizer

    def __init__(self, sampler: ChatSampler, messages: list[dict[str, str]]) -> None:
        self._sampler = sampler
        self._messages = messages

    def open_turn(self, prefix: str) -> None:
        """Do nothing: endpoints cannot continue a turn that was started for them, so the prefix is left out."""

    def locate(self, offset: int) -> int:
        """Return 0: the conversation has no tokens."""
        return 0

    def write_for(self, message: Message) -> Written:
        """Append the turn as the assistant's message."""
        self._messages.append(as_chat(message))
        return Written(message.text, "stop_string", 0)

    async def write(self, params: SamplingParams, thought_tokens: int = 0) -> Written:
        """Request a reply from the endpoint and append it; an endpoint's thoughts are its own."""
        reply = await self._sampler.reply(self._messages, params)
        self._messages.append({"role": "assistant", "content": reply.text})
        return Written(reply.text, reply.stop_reason, reply.num_tokens)

    def count(self, message: Message, max_tokens: int) -> int:
        """Return 0: the number of tokens is unknown, as for `num_tokens`."""
        return 0

    def answer(self, message: Message, max_tokens: int, room: int) -> Message | None:
        """Append the message uncut; the endpoint enforces its own context length."""
        self._messages.append(as_chat(message))
        return message
