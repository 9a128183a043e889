"""Options that all servers share: where they listen, and whom they answer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.serving.server import ServerSettings

KEY = "QUAERE_API_KEY"


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every server."""
    where = parser.add_argument_group("where, and for whom")
    where.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    where.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one (default: 8000)")
    where.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help=f"ask clients for the key in this file (default: ${KEY}, else none on 127.0.0.1)",
    )
    where.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that clients may call this server by (its address and localhost always)",
    )
    where.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="web pages of this origin may ask, such as https://app.example (default: none)",
    )
    # Spelled out, or argparse would take it for the beginning of --api-key-file.
    where.add_argument("--api-key", help=argparse.SUPPRESS)


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """What the options say."""
    from quaere.serving.server import ServerSettings

    return ServerSettings(
        host=args.host, port=args.port, allow_hosts=tuple(args.allow_host), allow_origins=tuple(args.allow_origin)
    )


def read_key(args: argparse.Namespace) -> str:
    """The key that clients must send, or ""."""
    from quaere.credentials import read_secret

    if args.api_key is not None:
        hint = f"export {KEY}=..., or --api-key-file FILE"
        raise BadInput("--api-key is no more: everybody on this machine can read a command line", hint=hint)
    return read_secret(KEY, args.api_key_file)
