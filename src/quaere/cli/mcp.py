"""`quaere mcp`: serves an index, and a model that answers from it, to clients of the Model Context Protocol.

quaere mcp --index docs-index
quaere mcp --index docs-index --model smollm2-135m
quaere mcp --index docs-index --http --port 8000
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from msgspec import Struct

from quaere.cli import options
from quaere.errors import BadInput, import_extra
from quaere.setting_types import Folder

if TYPE_CHECKING:
    from quaere.api.mcp_tools import IndexTools

_INSTRUCTIONS = "Documents of the user's own. Quote what you take from them with its document and its characters."


class McpOptions(Struct):
    """Options of `quaere mcp`.

    Attributes:
        index: the index to serve
        model: a model that answers, for the tool ask, and that writes reports if it is large enough: catalogue name,
            directory, hub id, or openai:MODEL@BASE_URL (default: none; reports are composed of cited sentences)
        http: serve streamable HTTP at /mcp (default: stdin and stdout)
    """

    index: Folder
    model: str | None = None
    http: bool = False


def _run(args: argparse.Namespace) -> None:
    import_extra("mcp_types", "quaere mcp needs the package mcp, version 2", extra="mcp")
    from quaere.serving.mcp_server import PATH, make_mcp_http_server, make_mcp_server, serve_stdio
    from quaere.serving.server import ServerSettings, bind, run_server

    settings, key = options.server_settings(args), options.read_key(args)
    if not args.http and (args.api_key_file or settings != ServerSettings()):
        raise BadInput("address and access are those of an HTTP server", hint="add --http")
    listener = bind(settings, key) if args.http else None  # a wrong address is reported before a model is loaded
    with redirect_stdout(sys.stderr):  # stdout belongs to the protocol
        tools = _open_tools(args)
    names = ", ".join(tool.name for tool in tools.tools)
    server = make_mcp_server(tools.tools, tools, tools.close, instructions=_INSTRUCTIONS)
    if listener is None:
        print(f"serving {names} of {args.index} on stdin and stdout", file=sys.stderr)
        # Python's own handler would wait for the thread that reads stdin, and it for a line; nothing can be lost.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        asyncio.run(serve_stdio(server))
        return

    def say_ready(url: str) -> None:
        print(f"serving {names} of {args.index} at {url}{PATH}, Ctrl-C ends", file=sys.stderr)

    run_server(make_mcp_http_server(server, settings, key=key, listener=listener), say_ready)


def _open_tools(args: argparse.Namespace) -> IndexTools:
    from quaere.api.mcp_agent import open_tools
    from quaere.search.index import open_index

    how = options.sampling_settings(args) | {"attempts": args.attempts, "min_confidence": args.min_confidence}
    return open_tools(open_index(args.index), args.model, **how)


fill = options.command(
    _run,
    McpOptions,
    options.VotingOptions,
    options.group("address and access of --http", options.ServerOptions),
    options.group("sampling", options.SamplingOptions),
    description="""\
Serve the tools search, get_document and report, and with a model ask, to a program that speaks the Model Context
Protocol: on stdin and stdout, or with --http to any number of them. Nothing is stored. Only this machine can reach the
HTTP server; --host lets others in, and needs a key.
""",
)
