"""`quaere trainer`: starts, lists and stops servers that sample and train for `quaere evolve --trainer tinker`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from quaere.errors import BadInput

_DESCRIPTION = """\
Start, list and stop SkyRL servers on this machine, which speak the Tinker interface. SkyRL is installed into an
environment of its own by uv (Python 3.12), at the first start.
"""


def register(commands: Any) -> None:
    """Add `trainer` to the command line."""
    parser = commands.add_parser(
        "trainer",
        help="start, list and stop servers that train (SkyRL)",
        description=_DESCRIPTION,
        epilog="quaere trainer start skyrl --model MODEL",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    start = actions.add_parser("start", help="start a server and wait until it has loaded the model")
    start.set_defaults(run=run_start)
    _add_server(start)
    start.add_argument("--model", required=True, metavar="M", help="the base model: a folder, a name or a hub id")
    start.add_argument(
        "--backend", choices=("jax", "fsdp", "megatron"), default="jax", help="SkyRL's engine (default: jax)"
    )
    start.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs to use (default: 0, a CPU; jax only)")
    start.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="port on this machine (default: the one it had, else a free one)",
    )
    start.add_argument("--max-rank", type=int, default=32, metavar="R", help="largest rank of an adapter (default: 32)")
    start.add_argument(
        "--environment", metavar="DIR", help="an environment that has SkyRL, for fsdp and megatron (default: its own)"
    )
    start.add_argument("--backend-config", metavar="JSON", help="further settings of SkyRL's engine, as JSON")
    status = actions.add_parser("status", help="list servers: where they answer and what they serve")
    status.set_defaults(run=run_status)
    _add_server(status)
    status.add_argument("--json", action="store_true", help="print JSON")
    stop = actions.add_parser("stop", help="stop a server; its log and checkpoints stay")
    stop.set_defaults(run=run_stop)
    _add_server(stop)
    stop.add_argument("--port", type=int, metavar="N", help="the server to stop, if there are several")


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", nargs="?", choices=("skyrl",), default="skyrl", help="the server (default: skyrl)")


def run_start(args: argparse.Namespace) -> None:
    """Start a server, and print its URL."""
    from quaere.serving.trainer_server import TrainerOptions, start_trainer

    if args.gpus < 0 or args.max_rank < 1 or not 0 <= args.port < 65536:
        raise BadInput("--gpus must be 0 or more, --max-rank 1 or more and --port below 65536")
    if args.backend != "jax" and not args.gpus:
        raise BadInput(f"--backend {args.backend} needs GPUs", hint=f"--backend {args.backend} --gpus 1")
    options = TrainerOptions(
        backend=args.backend,
        num_gpus=args.gpus,
        port=args.port,
        max_rank=args.max_rank,
        backend_config=_read_json(args.backend_config),
        environment=args.environment or "",
    )
    trainer = start_trainer(args.model, options, lambda line: print(line, file=sys.stderr))
    print(trainer.url)
    train = f"quaere evolve RECIPE --trainer tinker --trainer-url {trainer.url} --model {args.model} --index DIR"
    print(f"train on it with: {train}", file=sys.stderr)


def run_status(args: argparse.Namespace) -> None:
    """List the servers that were started here."""
    from quaere.serving.trainer_server import list_trainers

    found = list_trainers()
    if args.json:
        rows = [
            {"url": one.url, "model": one.model, "backend": one.backend, "state": one.state, "log": str(one.log)}
            for one in found
        ]
        print(json.dumps(rows))
        return
    for one in found:
        print(f"{one.url}  {one.state}  {one.backend}  {one.model}  (log: {one.log})")
    if not found:
        print("no trainer was started; start one with: quaere trainer start skyrl --model MODEL")


def run_stop(args: argparse.Namespace) -> None:
    """Stop the server on a port, or the only one."""
    from quaere.serving.trainer_server import list_trainers, stop_trainer

    found = [one for one in list_trainers() if args.port is None or one.url.endswith(f":{args.port}")]
    if not found:
        raise BadInput("there is no such trainer", hint="quaere trainer status")
    if len(found) > 1:
        ports = ", ".join(one.url.rpartition(":")[2] for one in found)
        raise BadInput(f"several trainers were started, on ports {ports}", hint="quaere trainer stop skyrl --port N")
    was_running = stop_trainer(found[0])
    print(f"{found[0].url} {'stopped' if was_running else 'had ended already'}; its log is {found[0].log}")


def _read_json(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        read = json.loads(text)
    except ValueError as error:
        raise BadInput(f"--backend-config is not JSON: {error}") from None
    if not isinstance(read, dict):
        raise BadInput("--backend-config must be a JSON object, as in '{\"max_lora_adapters\": 4}'")
    return read
