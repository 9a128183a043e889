"""Policies that can play episodes, and `open_policy`, which opens one from the value of `--model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from typing import Protocol as Interface

from quaere.chat.messages import as_chat
from quaere.chat.protocol import Protocol
from quaere.chat.renderer import Renderer
from quaere.chat.template import describe_tools
from quaere.policies.native.device import Precision
from quaere.policies.sampler import ChatSampler, TokenSampler
from quaere.records import Task
from quaere.rollout.conversation import ChatConversation, Conversation, TokenConversation


class Policy(Interface):
    """A model that can play episodes."""

    name: str
    lockstep: bool

    def open(self, session: str) -> None:
        """Announce an episode that is about to start; a second call for the same session has no effect."""
        ...

    def close(self, session: str) -> None:
        """End the session of an episode."""
        ...

    def begin(self, session: str, protocol: Protocol, task: Task) -> Conversation:
        """Start an episode's conversation."""
        ...

    async def stop(self) -> None:
        """Release threads, memory and connections."""
        ...


class TokenPolicy:
    """A token sampler and the renderer of its tokenizer. Only a policy of this type can be trained."""

    def __init__(self, sampler: TokenSampler, renderer: Renderer) -> None:
        self.name = sampler.name
        self.lockstep = sampler.lockstep
        self.sampler = sampler
        self.renderer = renderer

    def open(self, session: str) -> None:
        """Open the sampler's session."""
        self.sampler.open(session)

    def close(self, session: str) -> None:
        """Close the sampler's session."""
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

    def begin(self, session: str, protocol: Protocol, task: Task) -> ChatConversation:
        """Start a conversation with the opening as chat messages; tools are described in the system prompt."""
        messages = [as_chat(message) for message in protocol.opening(task)]
        if protocol.tools and messages and messages[0]["role"] == "system":
            messages[0]["content"] += describe_tools(protocol.tools)
        return ChatConversation(self.sampler, messages)

    async def stop(self) -> None:
        """Close the connection to the endpoint."""
        await self.sampler.stop()


def open_policy(
    model: str,
    *,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    dtype: Precision = "auto",
    mode: Literal["fast", "deterministic"] = "fast",
    max_rows: int = 32,
    interactive: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> TokenPolicy | ChatPolicy:
    """Open the policy for a model name; `report` receives progress lines, such as downloads.

    `interactive`: few turns are sampled at a time, so that int8 may be the fastest precision on a CPU.

    open_policy("smollm2-135m")                         # the native engine
    open_policy("openai:gpt-x@http://localhost:8001/v1")  # a text endpoint
    """
    from quaere.policies.openai import OpenAISampler, parse_endpoint

    if model.startswith("openai:"):
        return ChatPolicy(OpenAISampler(parse_endpoint(model)))
    from quaere.policies.catalogue import resolve_model

    found = resolve_model(model, report=report)
    from quaere.policies.model_folders import load_tokenizer
    from quaere.policies.native.bridge import load_model
    from quaere.policies.native.device import choose_device, choose_dtype
    from quaere.policies.native.sampler import NativeSampler

    chosen = choose_device(device, report)
    renderer = Renderer(load_tokenizer(found.tokenizer))
    loaded = load_model(found, chosen, choose_dtype(dtype, chosen, mode, interactive=interactive))
    sampler = NativeSampler.over(
        loaded, renderer.decode, name=model, mode=mode, max_rows=max_rows, quick=mode == "fast"
    )
    return TokenPolicy(sampler, renderer)
