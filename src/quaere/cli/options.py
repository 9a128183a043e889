"""Options of commands: a struct's fields as flags, and the options that several commands share.

    class SearchOptions(Struct):
        '''Options of `quaere search`.

        Attributes:
            topk: passages per query
        '''

        topk: PositiveCount = 3

    fill = command(run, SearchOptions)    # --topk N   passages per query (default: 3)

The docstring describes each option under `Attributes:`, as for the settings of recipes; a field without a description
is no option. The type gives the kind of value; in `Annotated`, a text is the metavar and a `Flag` says the rest.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct

from quaere.cli.terminal import note_line, say_line
from quaere.endpoint import read_secret
from quaere.errors import BadInput
from quaere.policies.catalogue import plain_name
from quaere.policies.native.device import Precision
from quaere.records import Question
from quaere.rollout.question_files import read_questions
from quaere.setting_types import File, NonNegativeFloat, PositiveCount, check_value, fields_of, read_attributes

if TYPE_CHECKING:
    from quaere.dialects.notes import RoleWeights
    from quaere.rollout.episode import Limits
    from quaere.serving.server import ServerSettings

T = TypeVar("T", bound=Struct)
Add = Callable[[argparse._ActionsContainer], None]
Run = Callable[[argparse.Namespace], None]
Register = Callable[[Any], None]  # takes what `ArgumentParser.add_subparsers` returns


class Flag:
    """How an option is typed, where its name and type do not say it: its names, and keywords of `add_argument`.

    Annotated[str, "RUN", Flag("--run")]        # a name without a dash, as Flag("file"), makes it an argument
    """

    def __init__(self, *names: str, **keywords: Any) -> None:
        self.names, self.keywords = names, keywords


def _name(text: str) -> str:
    """A name; an empty one, as of a variable that is not set, would be the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


Repeated = Flag(action="append")
Several = Flag(nargs="+")
Named = Flag(type=_name)
FolderName = Annotated[str, "DIR", Named]
RunName = Annotated[str, "RUN", Named, Flag("name")]

DEFAULT_MODEL = "smollm2-135m"
KEY = "QUAERE_API_KEY"
# Of a browser's extension, too: chrome-extension://ID.
_ORIGIN = re.compile(r"[a-zA-Z][\w+.-]*://(\[[\da-fA-F:.]+\]|[^/?#@:\s\[\]]+)(:\d+)?/?")


def add_options(
    parser: argparse._ActionsContainer, *schemas: type[Struct], only: Collection[str] = (), **defaults: Any
) -> None:
    """Add an option for every described field of the schemas.

    `only` names the fields if not all are wanted; `defaults` replace those of the fields.
    """
    for schema in schemas:
        said = read_attributes(schema)
        for field in (field for field in fields_of(schema) if field.name in said and (not only or field.name in only)):
            default = defaults.get(field.name, field.default)
            default = [*default] if isinstance(default, tuple) else default  # argparse appends to it
            _add_option(parser, field.name, field.type, said[field.name], default)


def _add_option(group: argparse._ActionsContainer, name: str, kind: Any, said: str, default: Any) -> None:
    is_optional = get_origin(kind) in (Union, UnionType)
    if is_optional:
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    flags, keywords = [f"--{name.replace('_', '-')}"], dict[str, Any]()
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        for note in notes:
            if isinstance(note, str):
                keywords["metavar"] = note
            elif isinstance(note, Flag):
                flags, keywords = [*note.names] or flags, keywords | note.keywords
            elif isinstance(note, Meta):
                keywords["type"] = _bounded(kind, note, flags[0])
    if get_origin(kind) in (list, tuple):
        kind = get_args(kind)[0]
    if kind is bool:
        action = "store_false" if default is True else "store_true"
        keywords.setdefault("action", argparse.BooleanOptionalAction if is_optional else action)
    elif get_origin(kind) is Literal:
        keywords.setdefault("choices", get_args(kind))
    elif kind is not str:
        keywords.setdefault("type", _path if kind is Path else kind)
    if flags[0].startswith("-"):
        keywords |= {"dest": name, "required": default is NODEFAULT}
    if default is not NODEFAULT:
        keywords["default"] = default
        if default and isinstance(default, str | int | float) and not isinstance(default, bool):
            said += "" if "default" in said or default == argparse.SUPPRESS else f" (default: {default})"
    is_hidden = said == argparse.SUPPRESS  # argparse itself compares by identity
    group.add_argument(*flags, **keywords, help=argparse.SUPPRESS if is_hidden else said)


def _bounded(kind: type, bounds: Meta, flag: str) -> Callable[[str], Any]:
    """Reads a number of an option; raises `BadInput` if it is out of bounds: "--limit must be at least 1, not 0"."""

    def read(text: str) -> Any:
        return check_value(Annotated[kind, bounds], kind(text), flag)

    read.__name__ = kind.__name__  # argparse names it if the text is no number
    return read


def group(title: str, *schemas: type[Struct], about: str | None = None, **how: Any) -> Add:
    """Options under a title of their own in the help; `how` is as for `add_options`."""
    return lambda parser: add_options(parser.add_argument_group(title, about), *schemas, **how)


def exclusive(schema: type[Struct], *, required: bool = False) -> Add:
    """Options of which one can be given, or must be."""
    return lambda parser: add_options(parser.add_mutually_exclusive_group(required=required), schema)


def command(
    run: Run | None,
    *parts: type[Struct] | Add,
    description: str | None = None,
    epilog: str | None = None,
    **defaults: Any,
) -> Add:
    """Gives a parser the options or actions of a command; `run` is None if only its actions can be run.

    fill = command(_run, SearchOptions, group("engine", EngineOptions))
    """

    def fill(parser: Any) -> None:
        parser.description, parser.epilog = description, epilog
        parser.set_defaults(run=run)
        for part in parts:
            add_options(parser, part, **defaults) if isinstance(part, type) else part(parser)

    return fill


def action(name: str, run: Run, help: str, *parts: type[Struct] | Add, **defaults: Any) -> Register:
    """Adds an action of a command, such as `quaere runs list`."""
    return lambda actions: command(run, *parts, **defaults)(actions.add_parser(name, help=help))


def actions(*several: Register, required: bool = True) -> Add:
    """Actions of a command, of which one can be given, or must be."""

    def add(parser: Any) -> None:
        choices = parser.add_subparsers(dest="action", required=required, metavar="ACTION", title="actions")
        for add_action in several:
            add_action(choices)

    return add


def read_options(args: argparse.Namespace, kind: type[T], **others: Any) -> T:
    """A struct of the options that have the names of its fields; those not given have the struct's own defaults."""
    given = {name: getattr(args, name, None) for name in kind.__struct_fields__}
    return kind(**{name: value for name, value in given.items() if value is not None} | others)


# ------------------------------------------------------------------------------------------------------------- kinds


def _path(text: str) -> Path:
    return Path(_name(text))


class _JoinedUrls(argparse.Action):
    """Joins the URLs of a repeated option; several places of other kinds cannot be searched as one."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        before, now = getattr(namespace, self.dest), str(values)
        if before is None:
            setattr(namespace, self.dest, now)
            return
        if not all(each.startswith(("http://", "https://")) for each in (before, now)):
            said = f"{option_string} {now} with {before}: only URLs can be searched together"
            raise BadInput(said, hint="quaere index FOLDER OTHER-FOLDER --out DIR makes one index of several folders")
        setattr(namespace, self.dest, f"{before},{now}")


def checkpoint(text: str) -> int | Literal["best", "last"]:
    """The value of `--checkpoint`: a step, `best` or `last`."""
    try:
        return "best" if text == "best" else "last" if text == "last" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a step (a whole number), best or last") from None


# What is searched (`search/searcher.py`), by either name. Several URLs are kept as one text, separated by commas.
IndexPlace = Annotated[str, "DIR|PLACE", Named, Flag("--index", "--search", action=_JoinedUrls)]
QuestionPlace = Annotated[str, "FILE|hub:ID"]
Checkpoint = Annotated[str, "N|best|last", Flag(type=checkpoint)]
Role = Literal["solver", "proposer", "actor"]
Device = Literal["auto", "cpu", "cuda"]


# ------------------------------------------------------------------------------------------------------ shared options


class JsonOption(Struct):
    """How the result is printed.

    Attributes:
        json: print JSON
    """

    json: bool = False


class RunsFolder(Struct):
    """Where runs are.

    Attributes:
        runs: folder of runs (default: $QUAERE_RUNS, or ./runs)
    """

    runs: FolderName | None = None


class AskedOptions(JsonOption, kw_only=True):
    """What `quaere ask` and `quaere report` have in common: the question or file of questions, index and model.

    Attributes:
        question: the question; or give --questions FILE
        questions: JSONL file of questions, or .txt file with a question per line, or a data set of the hub,
            hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]
        limit: only the first N questions of the file (default: all)
        index: what is searched: an index directory, URL of a search server (repeatable: requests are spread over the
            servers), mcp:COMMAND|URL, web:NAME[@URL], record:FILE@PLACE or replay:FILE
        model: catalogue name, directory, hub id, or openai:MODEL@BASE_URL
        json: print JSON, one object per question
    """

    question: Annotated[str, Flag("question", nargs="?")] | None = None
    questions: QuestionPlace | None = None
    limit: PositiveCount | None = None
    index: IndexPlace
    model: str = DEFAULT_MODEL


class EpisodeLimits(Struct):
    """How far an episode may go; the commands describe the defaults.

    Attributes:
        max_turns: most turns of an episode
        topk: passages per search
        turn_tokens: most tokens per turn
        sequence_tokens: most tokens of an episode
    """

    max_turns: PositiveCount | None = None
    topk: PositiveCount | None = None
    turn_tokens: PositiveCount | None = None
    sequence_tokens: PositiveCount | None = None


LIMITS = EpisodeLimits.__struct_fields__


class PlainOption(Struct):
    """A model of the catalogue without the adapter that is part of the package.

    Attributes:
        plain: a model of the catalogue as published, without the built-in adapter
    """

    plain: bool = False


class RoleOptions(PlainOption):
    """A model by its name, or a role of a training run.

    Attributes:
        model: catalogue name, directory or hub id
        run_name: a training run's name or directory
        role: role of the run (default: solver; actor for a run that writes reports)
        checkpoint: step of the run (default: the best by validation if there was one, else the last)
    """

    model: str | None = None
    run_name: Annotated[str, "RUN", Named, Flag("--run")] | None = None
    role: Role | None = None
    checkpoint: Checkpoint | None = None


class DeviceOption(Struct):
    """Where a model runs.

    Attributes:
        device: where the model runs
    """

    device: Device = "auto"


class PrecisionOptions(DeviceOption):
    """Device and precision of a model.

    Attributes:
        dtype: precision of the weights
    """

    dtype: Precision = "auto"


class SamplingOptions(PrecisionOptions):
    """How a model is sampled.

    Attributes:
        temperature: sampling temperature; 0 is greedy decoding (default: 0)
        seed: seed of the sampling (default: 0)
    """

    temperature: NonNegativeFloat = 0.0
    seed: int = 0


class VotingOptions(Struct, kw_only=True):
    """Several attempts at a question.

    Attributes:
        attempts: answer each question N times at temperature 1, and take the answer that most attempts give
        min_confidence: least confidence of an answer: the share of attempts that agree on it, or of a single attempt
            the geometric mean of its tokens' probabilities; one below it counts as an abstention (default: 0.25 with
            several attempts, else 0)
    """

    attempts: PositiveCount = 1
    min_confidence: Annotated[float, "X", Meta(ge=0, le=1)] | None = None


class EngineOptions(PrecisionOptions):
    """How a model is run on many tasks.

    Attributes:
        max_rows: episodes at once
        deterministic: make batches independent of timing, so that results repeat exactly; slower
        seed: seed of the sampling (default: 0)
    """

    max_rows: PositiveCount = 32
    deterministic: bool = False
    seed: int = 0


class TurnEngineOptions(EngineOptions):
    """The same, of commands whose tasks are single turns.

    Attributes:
        max_rows: turns at once
    """


class ServerOptions(Struct):
    """The address that a server listens on, and the clients it accepts.

    Attributes:
        host: address to listen on
        port: port to listen on; 0 takes a free one
        api_key_file: require the key in this file from clients (default: $QUAERE_API_KEY, else none on 127.0.0.1)
        allow_host: a host name that clients may use for this server (its address and localhost are always allowed)
        allow_origin: allow requests from web pages of this origin, such as https://app.example (default: none)
        api_key: ==SUPPRESS==
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key_file: File | None = None
    allow_host: Annotated[tuple[str, ...], "NAME", Repeated] = ()
    allow_origin: Annotated[tuple[str, ...], "URL", Repeated] = ()
    api_key: str | None = None  # declared, because argparse would otherwise read it as an abbreviation of api_key_file


# ------------------------------------------------------------------------------------------------- values of options


def refuse(*rules: tuple[object, str, str]) -> None:
    """Raise `BadInput` for the first broken rule: a condition, what is wrong if it holds, and what to type instead.

    refuse((args.language and not args.bench, "--language needs --bench", "--bench DIR --language en"))
    """
    for is_broken, said, hint in rules:
        if is_broken:
            raise BadInput(said, hint=hint)


def choose_plain(args: argparse.Namespace) -> None:
    """With --plain, replace the model's name by that of its plain form."""
    if args.plain:
        args.model = plain_name(args.model or "")


def given_limits(args: argparse.Namespace, *others: str) -> dict[str, Any]:
    """The limits of an episode that were given, by name."""
    return {name: value for name in (*LIMITS, *others) if (value := getattr(args, name)) is not None}


def read_asked(args: argparse.Namespace, command: str) -> list[Question]:
    """The question of the command line, or the questions of the file."""
    hint = f'quaere {command} "your question" --index DIR'
    if (args.question is None) == (args.questions is None):
        raise BadInput("give either a question or --questions FILE", hint=hint)
    if args.questions is not None:
        return read_questions(args.questions, args.limit)
    if not args.question.strip():
        raise BadInput("the question is empty", hint=hint)
    return [Question(id=command, text=args.question)]


def asked_settings(args: argparse.Namespace, limits: Limits, *, hidden: Collection[str]) -> dict[str, Any]:
    """The settings of this call that are stored with its run."""
    left_out = {"run", "runs", "json", *hidden}
    settings = {name: value for name, value in vars(args).items() if name not in left_out}
    return settings | {name: getattr(limits, name) for name in LIMITS}


def named_run(args: argparse.Namespace, name: str) -> Path:
    """The directory of a run, by its name in the folder of runs or by its path."""
    from quaere.runs import find_run, runs_root

    return find_run(runs_root(args.runs), name)


def find_weights(args: argparse.Namespace, run: str) -> RoleWeights:
    """The weights of a run that `--role` and `--checkpoint` name."""
    from quaere.dialects.notes import find_role

    return find_role(named_run(args, run), args.role or "", args.checkpoint, say_line)


def sampling_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments that open an agent for `quaere ask` and `quaere report`, from the `SamplingOptions` given."""
    engine = {"device": args.device, "dtype": args.dtype}
    return {"engine": engine, "temperature": args.temperature, "seed": args.seed, "on_note": note_line}


def engine_settings(args: argparse.Namespace, rows: str) -> dict[str, Any]:
    """How models are run (`EngineOptions`); `rows` is what the receiver calls the number of rows."""
    mode = "deterministic" if args.deterministic else "fast"
    return {rows: args.max_rows, "device": args.device, "dtype": args.dtype, "mode": mode}


def check_writable(path: Path | None, option: str = "", read: Iterable[Path | str | None] = ()) -> None:
    """Raise `BadInput` if a file cannot be written there, before the work and not after it.

    Nor may it be one of the files that the command has `read`: they are the user's.
    """
    if path is not None and path.exists() and os.path.realpath(path) in {os.path.realpath(one) for one in read if one}:
        raise BadInput(f"{f'{option} {path}'.strip()} is a file that is read", hint="name another file to write")
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        named = f"{option} {path}" if option else str(path)
        raise BadInput(f"{named} cannot be written: it is a folder, or its folder does not exist")


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """The server's settings from the options."""
    from quaere.serving.server import ServerSettings

    if wrong := next((one for one in args.allow_origin if not _ORIGIN.fullmatch(one)), None):
        raise BadInput(f"--allow-origin {wrong} is not an origin", hint="--allow-origin https://NAME[:PORT]")
    lists = {"allow_hosts": tuple(args.allow_host), "allow_origins": tuple(args.allow_origin)}
    return read_options(args, ServerSettings, **lists)


def read_key(args: argparse.Namespace) -> str:
    """The key that clients must send; "" if none is needed."""
    if args.api_key is not None:
        hint = f"export {KEY}=..., or --api-key-file FILE"
        raise BadInput("--api-key was removed: every user of this machine can read a command line", hint=hint)
    return read_secret(KEY, args.api_key_file)
