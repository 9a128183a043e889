"""How an episode's conversation grows, for policies that deal in tokens and for those that deal in text.

An episode only ever says `write` (let the policy write a turn) and `answer` (put the environment's message). A
`TokenConversation` keeps every token with its origin; a `ChatConversation` keeps messages and has nothing to train on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol as Interface

from msgspec import Struct, structs

from quaere.chat.messages import Message, as_chat
from quaere.chat.renderer import Renderer
from quaere.policies.sampler import ChatSampler, SamplingParams, TokenSampler
from quaere.records import Origin, Segment, StopReason


class Written(Struct, frozen=True):
    """A turn as it is read: text (with the words that opened it), why it ended, how long it was.

    Written(text="<answer>Venn</answer>", stop_reason="stop_string", num_tokens=7)
    """

    text: str
    stop_reason: StopReason
    num_tokens: int


class Conversation(Interface):
    """One episode's conversation in progress."""

    @property
    def num_tokens(self) -> int:
        """How long the context is, as far as it is known."""
        ...

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every token so far with its origin."""
        ...

    def open_turn(self, prefix: str) -> None:
        """Begin the policy's next turn with these words of ours ("" for none)."""
        ...

    async def write(self, params: SamplingParams) -> Written:
        """Let the policy write its turn."""
        ...

    def locate(self, offset: int) -> int:
        """The place, among all tokens, of the one that holds this character of the turn just written."""
        ...

    def count(self, message: Message, max_tokens: int) -> int:
        """How many tokens the environment's message would take if it were put now, cut to `max_tokens`."""
        ...

    def answer(self, message: Message, max_tokens: int, room: int) -> Message | None:
        """Put the environment's message, cut to `max_tokens`, and return it as it was shown.

        None, and nothing changed, if it does not fit into `room` tokens.
        """
        ...


class TokenConversation:
    """Grows by ids alone: sampled ids are kept as they are, and no sampled text is ever encoded."""

    def __init__(self, session: str, sampler: TokenSampler, renderer: Renderer, prompt: Sequence[int]) -> None:
        self._session = session
        self._sampler = sampler
        self._renderer = renderer
        self._context: list[int] = []
        self._segments: list[Segment] = []
        self._prefix = ""
        self._append("prompt", prompt)

    @property
    def num_tokens(self) -> int:
        """How long the context is."""
        return len(self._context)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every token so far with its origin."""
        return tuple(self._segments)

    def open_turn(self, prefix: str) -> None:
        """The prefix is the environment's: the policy sees it and is not trained on it."""
        self._prefix = prefix
        if prefix:
            self._append("environment", self._renderer.encode_parts((prefix,)))

    async def write(self, params: SamplingParams) -> Written:
        """Sample a turn; its ids go into the context as they are."""
        params = structs.replace(params, stop_token_ids=self._renderer.stop_token_ids)
        sampled = await self._sampler.sample(self._session, tuple(self._context), params)
        self._append("model", sampled.token_ids, sampled.logprobs)
        text = self._prefix + self._renderer.read_turn(sampled.token_ids)
        return Written(text, sampled.stop_reason, len(sampled.token_ids))

    def locate(self, offset: int) -> int:
        """By how long the text is of the first one, two, ... tokens; what we opened the turn with is not sampled."""
        written = self._segments[-1].token_ids
        counts, wanted = range(len(written)), offset - len(self._prefix)

        def length(count: int) -> int:
            # A character cut in two shows as up to three marks of its own, so a longer piece could be the shorter text.
            return len(self._renderer.decode(written[:count]).rstrip("\ufffd"))

        before = bisect_right(counts, wanted, key=length) - 1
        return len(self._context) - len(written) + max(0, before)

    def count(self, message: Message, max_tokens: int) -> int:
        """The message and the joint around it."""
        return len(self._renderer.reply(message, self._context[-1], max_tokens))

    def answer(self, message: Message, max_tokens: int, room: int) -> Message | None:
        """Append the joint and the message, cut to `max_tokens`."""
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
    """Grows by messages. Its text has no token ids, so it has no segments."""

    segments: tuple[Segment, ...] = ()
    num_tokens = 0  # unknown: the endpoint's tokenizer is its own

    def __init__(self, sampler: ChatSampler, messages: list[dict[str, str]]) -> None:
        self._sampler = sampler
        self._messages = messages

    def open_turn(self, prefix: str) -> None:
        """Endpoints cannot continue a turn that was begun for them, so the prefix is left out."""

    def locate(self, offset: int) -> int:
        """It has no tokens."""
        return 0

    async def write(self, params: SamplingParams) -> Written:
        """Ask the endpoint."""
        reply = await self._sampler.reply(self._messages, params)
        self._messages.append({"role": "assistant", "content": reply.text})
        return Written(reply.text, reply.stop_reason, reply.num_tokens)

    def count(self, message: Message, max_tokens: int) -> int:
        """Unknown, as `num_tokens` is."""
        return 0

    def answer(self, message: Message, max_tokens: int, room: int) -> Message | None:
        """Append the message; the endpoint minds its own lengths."""
        self._messages.append(as_chat(message))
        return message
