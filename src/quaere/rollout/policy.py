"""Policies that can play episodes, and the growing context of one episode.

An episode calls only `write` (the policy writes a turn) and `answer` (the environment's message is appended) of a
`Conversation`. A `TokenConversation` keeps every token with its origin. The conversation of an endpoint keeps messages
only, so its episodes cannot be trained on. `open_policy` opens a policy from the value of `--model`.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from msgspec import Struct, structs

from quaere.chat.markup import THOUGHT, Reading, describe_tools, has_unclosed
from quaere.chat.protocol import CALL_STOP, Message, Protocol, as_chat
from quaere.chat.renderer import Renderer
from quaere.policies.catalogue import ModelPath
from quaere.policies.native.device import Precision, choose_device, choose_dtype
from quaere.policies.sampler import ChatSampler, SamplingParams, TokenSampler
from quaere.records import Origin, Segment, StopReason, Task


def derive_seed(seed: int, *place: int | str) -> int:
    """A 63-bit seed for a place such as (step, episode, turn): equal for equal places, otherwise independent.

    derive_seed(7, 3, "solver", 0) == derive_seed(7, 3, "solver", 0) != derive_seed(7, 3, "solver", 1)
    """
    return int.from_bytes(blake2b(repr((seed, *place)).encode(), digest_size=8).digest(), "big") >> 1


# ------------------------------------------------------------------------------------------------------- conversations


class Written(Struct, frozen=True):
    """A turn of the policy: text (including the prefix that opened it), stop reason and length in tokens.

    The text is in the form that dialects read, whatever markup the model has for thoughts and calls. The length
    includes tokens that were appended to end a thought that was too long.

    Written(text="<answer>Venn</answer>", stop_reason="stop_string", num_tokens=7)
    """

    text: str
    stop_reason: StopReason
    num_tokens: int


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
        """Append `message` as a turn with the origin "environment"; control tokens in its quoted parts are left out."""
        self.open_turn("")
        self._append("environment", self._renderer.encode_parts((self._renderer.turn_start, *message.parts)))
        return Written(message.text, "stop_string", 0)

    async def write(self, params: SamplingParams, thought_tokens: int = 0) -> Written:
        """Sample a turn and append its ids to the context; a thought ends after `thought_tokens` (0: no limit)."""
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
        """Sample a thought, ended after `max_tokens`; the stop reason, and whether the turn goes on after the thought.

        The end of the thought is a stop string of the request; if the request ended later, a stop string of the turn
        that begins in it and ends in the next request would not be recognised.
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

    async def write_beside(
        self, messages: Sequence[Message], params: SamplingParams, thought_tokens: int, max_tokens: int
    ) -> Written:
        """Sample the turn of another conversation in this session; the last message is cut to `max_tokens`.

        It uses the same session, because a lockstep sampler waits for a request from every open session.
        """
        *first, last = messages
        prompt = self._renderer.opening([*first, self._renderer.cut(last, max_tokens)])
        beside = TokenConversation(self._session, self._sampler, self._renderer, prompt)
        return await beside.write(params, thought_tokens)

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
        self._segments.append(Segment(origin, tuple(ids), tuple(logprobs), (origin == "model",) * len(ids)))


class _ChatConversation:
    """A conversation as chat messages. It has no token ids and therefore no segments.

    A limit on thoughts has no effect, and replies are never cut: the endpoint enforces its own context length.
    """

    segments: tuple[Segment, ...] = ()
    num_tokens = 0  # unknown: only the endpoint has the tokenizer

    def __init__(self, sampler: ChatSampler, messages: list[dict[str, str]]) -> None:
        self._sampler = sampler
        self._messages = messages

    def open_turn(self, prefix: str) -> None:
        """Do nothing: endpoints cannot continue a turn that was started for them, so the prefix is left out."""

    def locate(self, offset: int) -> int:
        return 0

    def write_for(self, message: Message) -> Written:
        self._messages.append(as_chat(message))
        return Written(message.text, "stop_string", 0)

    async def write(self, params: SamplingParams, thought_tokens: int = 0) -> Written:
        reply = await self._sampler.reply(self._messages, params)
        self._messages.append({"role": "assistant", "content": reply.text})
        return Written(reply.text, reply.stop_reason, reply.num_tokens)

    async def write_beside(
        self, messages: Sequence[Message], params: SamplingParams, thought_tokens: int, max_tokens: int
    ) -> Written:
        return await _ChatConversation(self._sampler, [as_chat(message) for message in messages]).write(params)

    def count(self, message: Message, max_tokens: int) -> int:
        return 0

    def answer(self, message: Message, max_tokens: int, room: int) -> Message | None:
        self._messages.append(as_chat(message))
        return message


# The conversation of one episode in progress.
Conversation = TokenConversation | _ChatConversation


# ------------------------------------------------------------------------------------------------------------ policies


class TokenPolicy:
    """A token sampler and the renderer of its tokenizer. Only a policy of this type can be trained."""

    def __init__(self, sampler: TokenSampler, renderer: Renderer) -> None:
        self.name = sampler.name
        self.lockstep = sampler.lockstep
        self.sampler = sampler
        self.renderer = renderer

    def open(self, session: str) -> None:
        """Open a session of the sampler under this name, for one conversation."""
        self.sampler.open(session)

    def close(self, session: str) -> None:
        """Close the sampler's session of this name."""
        self.sampler.close(session)

    def begin(self, session: str, protocol: Protocol, task: Task) -> TokenConversation:
        """Render the opening messages to token ids and start a conversation with them."""
        prompt = self.renderer.opening(protocol.opening(task), protocol.tools)
        return TokenConversation(session, self.sampler, self.renderer, prompt)

    async def stop(self) -> None:
        """Stop the sampler."""
        await self.sampler.stop()


class ChatPolicy:
    """A text endpoint, for answering, judging and teaching; it cannot be trained because it returns no token ids."""

    def __init__(self, sampler: ChatSampler) -> None:
        self.name = sampler.name
        self.lockstep = False
        self.sampler = sampler

    def open(self, session: str) -> None:
        """Do nothing: endpoints keep no sessions."""

    def close(self, session: str) -> None:
        """Do nothing: endpoints keep no sessions."""

    def begin(self, session: str, protocol: Protocol, task: Task) -> _ChatConversation:
        """Start a conversation with the opening as chat messages; tools are described in the system prompt."""
        messages = [as_chat(message) for message in protocol.opening(task)]
        if protocol.tools and messages and messages[0]["role"] == "system":
            messages[0]["content"] += describe_tools(protocol.tools)
        return _ChatConversation(self.sampler, messages)

    async def stop(self) -> None:
        """Close the connection to the endpoint."""
        await self.sampler.stop()


# A model that can play episodes.
Policy = TokenPolicy | ChatPolicy


class EngineOptions(TypedDict, total=False):
    """How the native engine runs a model.

    With `interactive`, few turns are sampled at a time, so that int8 may be the fastest precision on a CPU. `report`
    receives progress lines, such as downloads.
    """

    device: Literal["auto", "cpu", "cuda"]
    dtype: Precision
    mode: Literal["fast", "deterministic"]
    max_rows: int
    interactive: bool
    report: Callable[[str], None]


def open_policy(model: str, **engine: Unpack[EngineOptions]) -> TokenPolicy | ChatPolicy:
    """Open the policy for a model name.

    open_policy("smollm2-135m")                         # the native engine
    open_policy("openai:gpt-x@http://localhost:8001/v1")  # a text endpoint
    """
    from quaere.policies.openai import OpenAISampler, parse_endpoint

    if model.startswith("openai:"):
        return ChatPolicy(OpenAISampler(parse_endpoint(model)))
    from quaere.policies.catalogue import resolve_model

    found = resolve_model(model, report=engine.get("report", lambda line: None))
    return load_policy(structs.replace(found, name=model), found.tokenizer, **engine)


def load_policy(model: ModelPath, tokenizer: str | Path, **engine: Unpack[EngineOptions]) -> TokenPolicy:
    """A policy of the native engine, with the tokenizer in this folder."""
    from quaere.policies.model_folders import load_tokenizer
    from quaere.policies.native.bridge import load_model
    from quaere.policies.native.sampler import NativeSampler

    mode, interactive = engine.get("mode", "fast"), engine.get("interactive", False)
    report: Callable[[str], None] = engine.get("report", lambda line: None)
    device = choose_device(engine.get("device", "auto"), report)
    renderer = Renderer(load_tokenizer(str(tokenizer)))
    loaded = load_model(model, device, choose_dtype(engine.get("dtype", "auto"), device, mode, interactive=interactive))
    sampler = NativeSampler.over(
        loaded, renderer.decode, name=model.name, mode=mode, max_rows=engine.get("max_rows", 32), quick=mode == "fast"
    )
    if sampler.engine.note:
        report(sampler.engine.note)
    return TokenPolicy(sampler, renderer)
