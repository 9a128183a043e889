"""A server of the Model Context Protocol: tools and resources, on stdin and stdout or over streamable HTTP.

    server = make_mcp_server([Tool("search", "Search", "...", SearchArguments, Found, search)], passages, close)
    asyncio.run(serve_stdio(server))
    run_server(make_mcp_http_server(server, ServerSettings(port=0)), print)

The SDK speaks every version of the protocol. Here arguments are read into structs, and a call that fails is answered in
one line: as a result the calling model can read if the arguments are wrong, else as an error of the protocol.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol

import anyio
import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server as McpServer
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from msgspec import Struct, structs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quaere import __version__
from quaere.chat.terminal_text import printable_line
from quaere.errors import QuaereError, failure_line
from quaere.serving.guard import log, replay_body
from quaere.serving.server import Listener, Server, ServerSettings, make_server

PATH = "/mcp"
MAX_BODY_BYTES = 1 << 20
_MAX_LINE = 300  # characters of an error


class Tool(Struct, frozen=True):
    """A tool: the structs of its arguments and of its result, whose schemas clients get, and the function.

    None of our tools changes anything. `open_world` says that documents or queries may leave this machine.
    """

    name: str
    title: str
    about: str
    takes: type[Struct]
    gives: type[Struct]
    call: Callable[[Any], Awaitable[Struct]]
    open_world: bool = False


class Resource(Struct, frozen=True):
    """A text with an address; `about` is what else is known of it, by name.

    Resource("quaere://passage/rivers.md%230", "rivers.md#0", "The Oss", "The Oss rises in ...", {"start": 0, ...})
    """

    uri: str
    name: str
    title: str
    text: str
    about: dict[str, Any]


class Resources(Protocol):
    """Texts that clients may list and read; an unknown address or cursor is a `BadInput`."""

    template: str

    def page(self, cursor: str | None) -> tuple[list[Resource], str | None]:
        """Some resources, and the cursor of the next ones; None if these are the last."""

    def read(self, uri: str) -> Resource:
        """The resource with this address."""


def make_mcp_server(
    tools: Sequence[Tool], resources: Resources, close: Callable[[], Awaitable[None]], *, instructions: str = ""
) -> Any:
    """The SDK's server object with these tools and resources; `close` is called in its event loop when it ends."""
    by_name = {tool.name: tool for tool in tools}

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe_tool(tool) for tool in tools])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in by_name:
            _refuse(f"there is no tool {params.name[:40]!r}; there are {', '.join(by_name)}")
        return await _call(by_name[params.name], params.arguments or {})

    async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
        found, cursor = _answer(resources.page, params.cursor if params else None)
        return types.ListResourcesResult(resources=[_describe_resource(one) for one in found], next_cursor=cursor)

    async def list_templates(context: Any, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(name="passage", uri_template=resources.template, mime_type="text/plain")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        found = _answer(resources.read, params.uri)
        text = types.TextResourceContents(uri=found.uri, mime_type="text/plain", text=found.text, _meta=found.about)
        return types.ReadResourceResult(contents=[text])

    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await close()

    server = McpServer(
        "quaere",
        version=__version__,
        instructions=instructions,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )
    server.middleware.clear()  # it would report every request to OpenTelemetry
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # errors are answered and logged here, in one line
    return server


async def serve_stdio(server: Any) -> None:
    """Serve one client until stdin ends. What else is written to stdout meanwhile goes to stderr."""
    write, read = anyio.create_memory_object_stream[Any](0)

    async def pass_on() -> None:
        async with write:
            async for message in incoming:
                # The SDK would drop a line that it cannot read, and its sender wait for an answer.
                if isinstance(message, Exception):
                    await outgoing.send(SessionMessage(_NO_MESSAGE))
                else:
                    await write.send(message)

    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:
        tasks.start_soon(pass_on)
        await server.run(read, outgoing, server.create_initialization_options())


def make_mcp_http_server(
    server: Any, settings: ServerSettings, *, key: str = "", listener: Listener | None = None
) -> Server:
    """Create an HTTP server at `PATH`, behind the checks of `guard.py`.

    It keeps no sessions and offers no streams to listen on (GET): idle clients would keep their connections open.
    """
    manager = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=MAX_BODY_BYTES)
    route = Route(PATH, _Endpoint(manager.handle_request), methods=["POST"])
    app = Starlette(routes=[route], lifespan=lambda app: manager.run())
    return make_server(app, structs.replace(settings, max_body_bytes=MAX_BODY_BYTES), key=key, listener=listener)


class _Endpoint:
    """Answers a body that is no JSON-RPC message with an error of one line (the SDK's has thirty); passes on others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        try:
            types.jsonrpc_message_adapter.validate_json(body, by_name=False)
        except ValueError:
            error = _NO_MESSAGE.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(error, 400, media_type="application/json")(scope, receive, send)
        else:
            await self._app(scope, replay_body(body, receive), send)


# --------------------------------------------------------------------------------------------------- calls and answers


_NO_MESSAGE = types.JSONRPCError(
    jsonrpc="2.0", id=None, error=types.ErrorData(code=types.PARSE_ERROR, message="this is no message of JSON-RPC 2.0")
)


async def _call(tool: Tool, arguments: dict[str, Any]) -> types.CallToolResult:
    """The tool's result as JSON, for clients with and without structured content; a failure as one line."""
    try:
        found = await tool.call(msgspec.convert(_whole(arguments), tool.takes))
        text, content = msgspec.json.encode(found).decode(), msgspec.to_builtins(found)
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=content)
    except (msgspec.ValidationError, QuaereError) as error:
        line = str(error)
    except Exception as error:
        log.error("the tool %s failed: %s", tool.name, failure_line(error))
        line = f"the server failed: {type(error).__name__}"
    return types.CallToolResult(content=[types.TextContent(text=_one_line(line))], is_error=True)


def _whole(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with 3.0 replaced by 3: JSON Schema accepts 3.0 as an integer, and some models write it so."""
    floats = {name: value for name, value in arguments.items() if isinstance(value, float) and value.is_integer()}
    return arguments | {name: int(value) for name, value in floats.items()}


def _answer(read: Callable[[Any], Any], asked: Any) -> Any:
    """What `read` returns; its `BadInput` as an error of the protocol."""
    try:
        return read(asked)
    except QuaereError as error:
        _refuse(str(error))


def _refuse(line: str) -> NoReturn:
    raise MCPError(code=types.INVALID_PARAMS, message=_one_line(line)) from None


def _one_line(text: str) -> str:
    return printable_line(text)[:_MAX_LINE]


# -------------------------------------------------------------------------------------------------------- descriptions


def _describe_tool(tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=tool.open_world
    )
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=object_schema(tool.takes),
        output_schema=object_schema(tool.gives),
        annotations=hints,
    )


def object_schema(kind: type[Struct]) -> dict[str, Any]:
    """The JSON schema of a struct with the object itself at the root, where clients expect it, and not a reference."""
    (reference,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root: dict[str, Any] = parts.pop(reference["$ref"].rpartition("/")[2])
    return root | ({"$defs": parts} if parts else {})


def _describe_resource(found: Resource) -> types.Resource:
    size = len(found.text.encode())
    return types.Resource(
        uri=found.uri, name=found.name, title=found.title, mime_type="text/plain", size=size, _meta=found.about
    )
