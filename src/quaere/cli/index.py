"""`quaere index`: make an index of a folder of documents, and keep it up to date."""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.cli.terminal import say_line
from quaere.cli.work_progress import describe_count, show_progress
from quaere.errors import BadInput

if TYPE_CHECKING:
    from quaere.api.printing import Progress
    from quaere.search.index import Index
    from quaere.search.update import UpdateCounts
    from quaere.search.walk import SourceFile

_MAX_SHOWN = 20  # files named in the summary; the manifest names more
_DESCRIPTION = """\
Make an index of every SOURCE: a folder of documents (.md .txt .rst .html .pdf .docx .pptx .xlsx .csv .tsv .ipynb .epub
.eml), one document, or a JSON Lines file (.jsonl, .jsonl.gz, .jsonl.zst) with {"id", "title", "text"} or
{"id", "contents"} on each line. With --update, bring an index up to date: its sources and options are remembered, and
only files that have changed are read and embedded.
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command."""
    parser = commands.add_parser("index", help="make an index of a folder of documents", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument(
        "sources", type=Path, nargs="*", metavar="SOURCE", help="a folder, a document, or a JSON Lines file"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the index is written")
    parser.add_argument("--update", type=Path, metavar="DIR", help="bring the index DIR up to date with its sources")
    parser.add_argument("--watch", action="store_true", help="keep it up to date until Ctrl-C")
    parser.add_argument("--engine", choices=("bm25", "dense", "hybrid", "lance"), help="default: bm25")
    first = "compare the first 20 passages with the query by this sentence encoder, in every search; none: do not"
    parser.add_argument("--rerank", metavar="MODEL", help=first)
    parser.add_argument("--force", action="store_true", help="replace the index that is there")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument(
        "--max-file-mib", type=int, metavar="N", help="leave out documents larger than this (default: 64 MiB)"
    )
    files = parser.add_argument_group(
        "files of a folder", "GLOB is a pattern as in a .gitignore: *.md, drafts/, /top.txt"
    )
    files.add_argument("--include", action="append", metavar="GLOB", help="read only files like this (repeatable)")
    files.add_argument("--exclude", action="append", metavar="GLOB", help="leave out files like this (repeatable)")
    files.add_argument(
        "--no-gitignore",
        action="store_false",
        dest="gitignore",
        help="also read what a .gitignore in a folder leaves out",
    )
    passages = parser.add_argument_group("passages")
    passages.add_argument(
        "--chunk-words", type=int, dest="max_words", metavar="N", help="longest passage, in words (default: 120)"
    )
    passages.add_argument("--overlap-words", type=int, metavar="N", help="words shared by neighbours (default: 0)")
    passages.add_argument(
        "--row-words", type=int, metavar="N", help="JSON Lines rows this long stay whole (default: 300)"
    )
    words = parser.add_argument_group("word search (bm25, hybrid, lance)")
    words.add_argument("--k1", type=float, metavar="X", help="how soon repeated words stop counting (default: 1.2)")
    words.add_argument("--b", type=float, metavar="X", help="how much length counts against a passage (default: 0.75)")
    words.add_argument("--title-weight", type=int, metavar="N", help="how often the title counts (default: 3)")
    stems = "auto, none or a language, as english (default: auto, the language of the documents)"
    words.add_argument("--stemmer", metavar="NAME", help=stems)
    dense = parser.add_argument_group("search by meaning (dense, hybrid, lance)")
    named = "sentence-transformers model, or openai:MODEL@BASE_URL for one on a server (default: intfloat/e5-base-v2)"
    dense.add_argument("--embedder", metavar="M", help=named)
    dense.add_argument("--query-prefix", metavar="TEXT", help='put before every query (E5 models: "query: ")')
    dense.add_argument("--passage-prefix", metavar="TEXT", help='put before every passage (E5 models: "passage: ")')
    dense.add_argument("--ann", choices=("flat", "ivf", "hnsw"), help="how neighbours are found (default: flat, exact)")
    dense.add_argument("--num-lists", type=int, metavar="N", help="ivf: clusters (default: by the number of passages)")
    dense.add_argument("--num-probes", type=int, metavar="N", help="ivf: clusters searched (default: 16)")
    dense.add_argument("--num-links", type=int, metavar="N", help="hnsw: links per passage (default: 32)")
    dense.add_argument("--search-width", type=int, metavar="N", help="hnsw: candidates per search (default: 64)")
    lance = parser.add_argument_group("LanceDB (lance)", "passages and vectors stay on disk; options as above")
    kinds = "words, vectors or both (default: text)"
    lance.add_argument("--lance-search", choices=("text", "dense", "hybrid"), help=kinds)
    dense.add_argument("--batch-size", type=int, metavar="N", help="passages embedded at once (default: 64)")


def run(args: argparse.Namespace) -> None:
    """Build the index or bring it up to date, and print what is in it."""
    _check_options(args)
    if args.update:
        _update(args.update, args.json, args.rerank)
    else:
        _build(args)
    if args.watch:
        _watch(args.update or args.out, args.json)


def _build(args: argparse.Namespace) -> None:
    from quaere.api.index import index_settings
    from quaere.cli.terminal import interruptible
    from quaere.search.index import build_index

    # Options have the names of the settings' fields; what was not given is the settings' own default.
    given = {name: value for name, value in vars(args).items() if value is not None}
    started = time.monotonic()
    with interruptible("an index that was there stays as it was"), _show_progress() as progress:
        index = build_index(args.sources, args.out, index_settings(given), progress, force=args.force)
    _print_index(index, time.monotonic() - started, args.json)


def _check_options(args: argparse.Namespace) -> None:
    """Refuse what does not go together."""
    if not args.update:
        if not args.sources:
            raise BadInput("no SOURCE is named", hint="quaere index FOLDER --out DIR, or quaere index --update DIR")
        if not args.out:
            raise BadInput("--out is missing", hint="quaere index FOLDER --out DIR")
        return
    apart = {"run", "update", "watch", "json", "rerank"}
    given = [name for name, value in vars(args).items() if name not in apart and value not in (None, False, [])]
    if not args.gitignore or given != ["gitignore"]:
        raise BadInput(
            "--update takes no SOURCE, and no option but --rerank, --watch and --json: the others are remembered",
            hint=f"quaere index --update {args.update}, or quaere index SOURCE --out {args.update} --force ...",
        )


def _update(path: Path, json: bool, rerank: str | None = None) -> None:
    from quaere.cli.terminal import interruptible
    from quaere.search.update import update_index

    started = time.monotonic()
    with interruptible("the index stays as it was"), _show_progress() as progress:
        updated = update_index(path, progress, rerank=rerank)
    _print_index(updated.index, time.monotonic() - started, json, updated.counts)


def _watch(path: Path, json: bool) -> None:
    """Update whenever the sources have changed. An update that fails is said, and tried again after the next change."""
    from quaere.search.update import wait_for_changes

    passed_over: list[SourceFile] = []
    try:
        say_line(f"watching the sources of {path}, Ctrl-C ends")
        while True:
            files = wait_for_changes(path, passed_over)
            try:
                _update(path, json)
            except BadInput as error:
                say_line(f"{error}; the index stays as it was")
                passed_over = files
    except KeyboardInterrupt:
        say_line("no longer watching")


# ---------------------------------------------------------------------------------------------------- what is printed


def _show_progress() -> AbstractContextManager[Progress]:
    return show_progress(describe_amount)


def describe_amount(doing: str, done: int, total: int | None) -> str:
    """How much of it is done; documents are read by the byte.

    describe_amount("embedding", 512, 23784) == "512 of 23,784"
    describe_amount("reading documents", 12_400_000, 98_000_000) == "12.4 of 98.0 MB"
    """
    from quaere.search.index import READING

    if doing == READING and total is not None:
        return f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
    return describe_count(doing, done, total)


def _print_index(index: Index, seconds: float, json: bool, counts: UpdateCounts | None = None) -> None:
    if json:
        _print_json(index, counts)
        return
    if counts:
        changed = f"{counts.num_added} added, {counts.num_changed} changed, {counts.num_removed} removed"
        print(f"files: {changed}, {counts.num_unchanged} unchanged; {counts.num_read} read")
        embedded = f", {counts.num_embedded} embedded" if index.manifest.settings.has_vectors else ""
        print(f"passages: {counts.num_kept} kept, {len(index) - counts.num_kept} new{embedded}")
    _print_summary(index, seconds)


def _print_summary(index: Index, seconds: float) -> None:
    from quaere.cli.terminal import printable_line

    manifest, corpus = index.manifest, index.manifest.corpus
    print(f"{index.path}: {manifest.num_passages} passages of {manifest.num_documents} documents, ", end="")
    print(printable_line(f"engine {manifest.settings.summary}, {seconds:.1f} s"))
    notes = [
        ("left out, exact duplicates", corpus.num_duplicates),
        ("left out, no text", corpus.num_empty),
        ("left out, other kinds of file", _counts(corpus.ignored_suffixes)),
        ("left out by a .gitignore", corpus.num_gitignored),
        ("left out by --include and --exclude", corpus.num_excluded),
        *(
            (f"left out, {needed.partition(': ')[0]}", _needs(needed, count))
            for needed, count in corpus.missing.items()
        ),
        ("left out, not readable", corpus.num_unreadable),
        *_named(corpus.unreadable, corpus.num_unreadable),
        ("read in part", corpus.num_problems),
        *_named(corpus.problems, corpus.num_problems),
        ("not in UTF-8, read as", _counts(corpus.other_encodings)),
    ]
    for note, value in notes:
        if value:
            print(printable_line(f"  {note}: {value}"))  # files may be called anything
    print(f'next: quaere search "..." --index {index.path}')


def _needs(needed: str, count: int) -> str:
    """How many files a library is missing for, and how to get it."""
    return f"{count} ({needed.partition(': ')[2]})"


def _named(reasons: list[str], total: int) -> list[tuple[str, str]]:
    """Files with their reasons, as lines below their count."""
    lines = [("  " + name, reason) for name, _, reason in (line.partition(": ") for line in reasons[:_MAX_SHOWN])]
    return [*lines, ("  and more", f"{total - _MAX_SHOWN} (in manifest.json)")] if total > _MAX_SHOWN else lines


def _print_json(index: Index, counts: UpdateCounts | None) -> None:
    import msgspec

    manifest = msgspec.to_builtins(index.manifest)
    summary = {"index": str(index.path)} | {key: manifest[key] for key in manifest if key not in ("kind", "file_sizes")}
    summary |= {"update": counts} if counts else {}
    print(msgspec.json.encode(summary).decode(), flush=True)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
