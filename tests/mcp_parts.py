"""Servers of the Model Context Protocol for tests: real documents, the SDK's client, a model that follows a script."""

import os
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager

import pytest

pytest.importorskip("mcp_types", reason="needs the extra mcp")

import httpx2
import mcp_types
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server import lowlevel

import tiny
from asked import SCRIPTS, ByQuestion
from quaere.api.agent import OpenAgent, choose_solver
from quaere.api.mcp_agent import AgentTools
from quaere.api.mcp_tools import IndexTools
from quaere.chat.renderer import Renderer
from quaere.dialects.notes import Notes
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.search.searcher import LocalSearcher
from quaere.serving.mcp_server import make_mcp_http_server, make_mcp_server
from quaere.serving.server import ServerSettings
from reporting import answer, search

types, Server = mcp_types, lowlevel.Server  # a test imports them from here, so that it is skipped where they are not
ERAS = ("auto", "legacy")  # 2026-07-28, and the versions before it, which begin with a handshake
NOTES = Notes(limits=Limits(sequence_tokens=20_000), evidence=True)
REPORTS = {
    "known of the backups": [
        search("moved backups Oslo"),
        answer("They were moved in May 2019 [1]. So it is said [9]."),
    ],
    "written at all": [search("Korrin")] * 30,
}


def index_tools(index):
    return IndexTools(index, LocalSearcher(index))


def agent_tools(index, scripts=None, notes=NOTES, model="m"):
    """Tools with a model that follows the script of its question; `sampler` is that of the script."""
    tokenizer = tiny.tokenizer()
    sampler = ByQuestion(tokenizer, scripts or {"without proof": SCRIPTS["without proof"], **SCRIPTS, **REPORTS})
    protocol, limits = choose_solver(notes, needs_guide=False, limits={"turn_tokens": 512})
    policy = TokenPolicy(sampler, Renderer(tokenizer))
    agent = OpenAgent(policy, LocalSearcher(index), protocol, limits, notes, notes.min_overlap)
    tools = AgentTools(index, agent, model)
    tools.sampler = sampler
    return tools


def make_server(tools):
    return make_mcp_server(tools.tools, tools, tools.close)


@asynccontextmanager
async def in_process(index, mode="auto", tools=None):
    """A client of the index's tools without a transport between them."""
    async with Client(make_server(tools or index_tools(index)), mode=mode) as client:
        yield client


@contextmanager
def served_over_http(tools, key="", **settings):
    """The URL of a real HTTP server, in a thread of its own."""
    server = make_mcp_http_server(make_server(tools), ServerSettings(port=0, **settings), key=key)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"{server.url}/mcp"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


@asynccontextmanager
async def over_http(url, mode="auto", key=""):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def command(*words):
    """A server's process, for the SDK's client."""
    env = {name: value for name in ("PYTHONPATH", "COVERAGE_PROCESS_START") if (value := os.environ.get(name))}
    return StdioServerParameters(command=sys.executable, args=["-m", "quaere", *map(str, words)], env=env)


def over_stdio(*words, mode="auto"):
    return Client(command(*words), mode=mode)
