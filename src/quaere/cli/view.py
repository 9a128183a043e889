"""`quaere view`: runs as pages in a browser.

quaere view
quaere view runs/notes --open
quaere view runs/notes --export notes-pages
quaere view --model smollm2-135m --index notes-index
"""

import argparse
import sys
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from quaere.api.agent import Agent
from quaere.api.run import Run, name_index
from quaere.cli import options
from quaere.cli.terminal import interruptible, say_line
from quaere.errors import BadInput
from quaere.evaluation.qa.scores import read_scored
from quaere.serving.server import run_server
from quaere.setting_types import File, Folder, PositiveCount
from quaere.viewer.app import make_view_server
from quaere.viewer.ask_queue import AskHistory, AskQueue
from quaere.viewer.page_formats import path_to
from quaere.viewer.run_folder import RunFolder, open_folder


class ViewOptions(options.RunsFolder):
    """Options of `quaere view`.

    Attributes:
        what: a run's name or directory, or a folder of runs (default: the folder of runs)
        open: also open the page in the browser of this machine
        results: files of `quaere eval --out` or `--items`, to show and compare beside the runs
    """

    what: Annotated[str, "RUN|FOLDER", options.Named, options.Flag("what", nargs="?")] | None = None
    open: bool = False
    results: Annotated[tuple[Path, ...], "FILE", options.Several] = ()


class PageOptions(Struct):
    """Pages as files.

    Attributes:
        export: write the pages to this folder and end
        pages: write at most this many, those nearest to the first one
        force: replace an earlier export at --export
    """

    export: Folder | None = None
    pages: PositiveCount = 2000
    force: bool = False


class AskingOptions(options.DeviceOption):
    """The page to ask questions.

    Attributes:
        ask: ask the run's own model, which searches the run's own index
        model: the model to ask: catalogue name, directory, hub id, or openai:MODEL@BASE_URL (default: the run's own,
            else smollm2-135m)
        index: what is searched: an index directory, URL of a search server (repeatable: requests are spread over the
            servers), mcp:COMMAND|URL, web:NAME[@URL], record:FILE@PLACE or replay:FILE
        evidence: ask for the sentence that proves an answer (default: only models that were taught to quote)
        history: JSON Lines file that keeps questions and answers (default: none, they are kept until the viewer ends)
    """

    ask: bool = False
    model: str | None = None
    index: options.IndexPlace | None = None
    evidence: bool | None = None
    history: File | None = None


def _run(args: argparse.Namespace) -> None:
    folder = open_folder(args.what, args.runs)
    _check_results(args.results)
    if args.export is not None:
        _export(folder, args)
        return
    key = options.read_key(args)
    with ExitStack() as held:
        queue = _open_queue(args, folder, held) if args.ask or args.model or args.index else None
        if queue is None and args.history:
            raise BadInput("--history keeps questions, so it needs --ask", hint="quaere view RUN --ask --history FILE")
        server = make_view_server(folder, options.server_settings(args), key=key, queue=queue, files=args.results)

        def say_ready(url: str) -> None:
            page = url + (path_to("run", folder.only) if folder.only else "/")
            print(f"showing {folder.title(folder.only) or folder.root} at {page}, Ctrl-C ends", file=sys.stderr)
            if queue is not None:
                print(f"asking {queue.model} at {url}/ask", file=sys.stderr)
            if key:
                print(f"a browser needs the key once: {url}/?api_key=KEY", file=sys.stderr)
            if args.open:
                webbrowser.open(page)

        run_server(server, say_ready)


fill = options.command(
    _run,
    ViewOptions,
    options.group("pages as files", PageOptions),
    options.group("asking", AskingOptions, about="one of --ask, --model and --index adds a page to ask questions"),
    options.group("address and access", options.ServerOptions, port=8700),
    description="""\
Show runs in a browser: all of a folder, or one. Pages follow a run while it trains. Only this machine can reach them;
--host lets others in, and needs a key. With a model and an index there is also a page to ask questions. --export writes
the pages to a folder instead: they open without a server.
""",
)


def _export(folder: RunFolder, args: argparse.Namespace) -> None:
    from quaere.viewer.page_files import export_pages

    if args.ask or args.model or args.index or args.history:
        raise BadInput("an export has no page to ask questions", hint="leave out --ask, --model, --index and --history")
    with interruptible(f"nothing is written to {args.export}"):
        done = export_pages(folder, args.export, max_pages=args.pages, force=args.force, results=args.results)
    print(f"{done.num_pages} pages in {args.export}; open {done.first}", file=sys.stderr)
    if done.num_left_out:
        print(f"at least {done.num_left_out} further pages had no room: --pages N writes more", file=sys.stderr)
    if args.open:
        webbrowser.open(done.first.absolute().as_uri())


def _check_results(files: list[Path]) -> None:
    for path in files:
        read_scored(path)
    if len({path.name for path in files}) < len(files):
        raise BadInput("two files of --results have the same name", hint="rename one of them")


def _open_queue(args: argparse.Namespace, folder: RunFolder, held: ExitStack) -> AskQueue:
    """The agent behind the page Ask, loaded: with what was named, else with the run's own model and index."""
    model: str | Run = args.model or options.DEFAULT_MODEL
    index = args.index
    if folder.only:
        run = held.enter_context(folder.open(folder.only))
        index = index or name_index(run)
        if not args.model and run.info.kind == "evolve":
            model = run
    if not index:
        raise BadInput("asking needs an index to search", hint="quaere view --model MODEL --index DIR")
    history = AskHistory(args.history)
    held.callback(history.close)
    how = {"evidence": args.evidence, "device": args.device, "max_rows": 1, "on_note": say_line}
    return held.enter_context(AskQueue(held.enter_context(Agent(model, index, **how)), history))
