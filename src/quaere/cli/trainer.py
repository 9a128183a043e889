"""`quaere trainer`: starts, lists and stops servers that sample and train for `quaere evolve --trainer tinker`."""

import argparse
import json
import sys
from typing import Annotated, Any, Literal

from msgspec import Struct

from quaere.cli.options import Flag, JsonOption, action, actions, command, read_options
from quaere.errors import BadInput
from quaere.serving.trainer_server import TrainerOptions, list_trainers, start_trainer, stop_trainer
from quaere.setting_types import Count


class TrainerServer(Struct):
    """The server that is started, listed or stopped.

    Attributes:
        server: the server
    """

    server: Annotated[Literal["skyrl"], Flag("server", nargs="?")] = "skyrl"


class StartOptions(TrainerServer, kw_only=True):
    """Options of `quaere trainer start`.

    Attributes:
        model: the base model: a folder, a name or a hub id
        backend_config: further settings of SkyRL's engine, as JSON
    """

    model: Annotated[str, "M"]
    backend_config: Annotated[str, "JSON"] | None = None


class StopOptions(TrainerServer):
    """Options of `quaere trainer stop`.

    Attributes:
        port: the server to stop, if there are several
    """

    port: Count | None = None


def _start(args: argparse.Namespace) -> None:
    if args.backend != "jax" and not args.gpus:
        raise BadInput(f"--backend {args.backend} needs GPUs", hint=f"--backend {args.backend} --gpus 1")
    options = read_options(args, TrainerOptions, backend_config=_read_json(args.backend_config))
    trainer = start_trainer(args.model, options, lambda line: print(line, file=sys.stderr))
    print(trainer.url)
    train = f"quaere evolve RECIPE --trainer tinker --trainer-url {trainer.url} --model {args.model} --index DIR"
    print(f"train on it with: {train}", file=sys.stderr)


def _status(args: argparse.Namespace) -> None:
    found = list_trainers()
    if args.json:
        names = ("url", "model", "backend", "state", "log")
        print(json.dumps([{name: str(getattr(one, name)) for name in names} for one in found]))
        return
    for one in found:
        print(f"{one.url}  {one.state}  {one.backend}  {one.model}  (log: {one.log})")
    if not found:
        print("no trainer was started; start one with: quaere trainer start skyrl --model MODEL")


def _stop(args: argparse.Namespace) -> None:
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


fill = command(
    None,
    actions(
        action("start", _start, "start a server and wait until it has loaded the model", StartOptions, TrainerOptions),
        action("status", _status, "list servers: where they answer and what they serve", TrainerServer, JsonOption),
        action("stop", _stop, "stop a server; its log and checkpoints stay", StopOptions),
    ),
    description="""\
Start, list and stop SkyRL servers on this machine, which speak the Tinker interface. SkyRL is installed into an
environment of its own by uv (Python 3.12), at the first start.
""",
    epilog="quaere trainer start skyrl --model MODEL",
)
