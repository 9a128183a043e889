"""Options of all servers: the address they listen on, and the clients they accept."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.serving.server import ServerSettings

KEY = "QUAERE_API_KEY"


def add_server_options(parser: argparse.ArgumentParser, port: int = 8000) -> None:
    """Add the options of every server; `port` is the one it listens on by default."""
    where = parser.add_argument_group("address and access")
    where.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    where.add_argument(
        "--port", type=int, default=port, help=f"port to listen on; 0 takes a free one (default: {port})"
    )
    where.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help=f"require the key in this file from clients (default: ${KEY}, else none on 127.0.0.1)",
    )
    where.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that clients may use for this server (its address and localhost are always allowed)",
    )
    where.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="allow requests from web pages of this origin, such as https://app.example (default: none)",
    )
    # Declared, because argparse would otherwise read it as an abbreviation of --api-key-file.
    where.add_argument("--api-key", help=argparse.SUPPRESS)


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """The server's settings from the options."""
    from quaere.serving.server import ServerSettings

    return ServerSettings(
        host=args.host, port=args.port, allow_hosts=tuple(args.allow_host), allow_origins=tuple(args.allow_origin)
    )


def read_key(args: argparse.Namespace) -> str:
    """The key that clients must send; "" if none is needed."""
    from quaere.endpoint import read_secret

    if args.api_key is not None:
        hint = f"export {KEY}=..., or --api-key-file FILE"
        raise BadInput("--api-key was removed: every user of this machine can read a command line", hint=hint)
    return read_secret(KEY, args.api_key_file)
