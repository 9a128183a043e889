"""`quaere index`: make an index of a folder of documents, and keep it up to date."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Struct

from quaere.api.printing import count, show_progress
from quaere.cli.options import Flag, JsonOption, Repeated, command, group
from quaere.cli.terminal import interruptible, printable_line, say_line
from quaere.errors import BadInput, QuaereError
from quaere.search.engines import ENGINE_NAMES
from quaere.setting_types import Count, Folder, Number

if TYPE_CHECKING:
    from quaere.search.index import Index
    from quaere.search.index_build import UpdateCounts
    from quaere.search.walk import SourceFile

_MAX_SHOWN = 20  # files named in the summary; the manifest names more


class IndexOptions(JsonOption, kw_only=True):
    """Options of `quaere index`.

    Attributes:
        sources: a folder, a document, or a JSON Lines file
        out: where the index is written
        update: bring the index DIR up to date with its sources
        watch: keep it up to date until Ctrl-C
        engine: default: bm25
        rerank: compare the first 20 passages with the query by this sentence encoder, in every search; none: do not
        force: replace the index that is there
        json: print the summary as JSON
        max_file_mib: leave out documents larger than this (default: 64 MiB)
    """

    sources: Annotated[tuple[Path, ...], "SOURCE", Flag("sources", nargs="*")]
    out: Folder | None = None
    update: Folder | None = None
    watch: bool = False
    engine: Annotated[str, Flag(choices=ENGINE_NAMES)] | None = None
    rerank: Annotated[str, "MODEL"] | None = None
    force: bool = False
    max_file_mib: Count | None = None


class FileOptions(Struct):
    """Files of a folder.

    Attributes:
        include: read only files like this (repeatable)
        exclude: leave out files like this (repeatable)
        gitignore: also read what a .gitignore in a folder leaves out
    """

    include: Annotated[tuple[str, ...], "GLOB", Repeated] | None = None
    exclude: Annotated[tuple[str, ...], "GLOB", Repeated] | None = None
    gitignore: Annotated[bool, Flag("--no-gitignore")] = True


class PassageOptions(Struct):
    """How documents are cut into passages.

    Attributes:
        max_words: longest passage, in words (default: 120)
        overlap_words: words shared by neighbours (default: 0)
        row_words: JSON Lines rows this long stay whole (default: 300)
    """

    max_words: Annotated[int, "N", Flag("--chunk-words")] | None = None
    overlap_words: Count | None = None
    row_words: Count | None = None


class WordOptions(Struct):
    """How words are searched.

    Attributes:
        k1: how soon repeated words stop counting (default: 1.2)
        b: how much length counts against a passage (default: 0.75)
        title_weight: how often the title counts (default: 3)
        stemmer: auto, none or a language, as english (default: auto, the language of the documents)
    """

    k1: Number | None = None
    b: Number | None = None
    title_weight: Count | None = None
    stemmer: Annotated[str, "NAME"] | None = None


class MeaningOptions(Struct):
    """How passages are embedded and found by meaning.

    Attributes:
        embedder: sentence-transformers model, or openai:MODEL@BASE_URL for one on a server (default:
            intfloat/e5-base-v2)
        query_prefix: put before every query (E5 models: "query: ")
        passage_prefix: put before every passage (E5 models: "passage: ")
        ann: how neighbours are found (default: flat, exact)
        num_lists: ivf: clusters (default: by the number of passages)
        num_probes: ivf: clusters searched (default: 16)
        num_links: hnsw: links per passage (default: 32)
        search_width: hnsw: candidates per search (default: 64)
        batch_size: passages embedded at once (default: 64)
    """

    embedder: Annotated[str, "M"] | None = None
    query_prefix: Annotated[str, "TEXT"] | None = None
    passage_prefix: Annotated[str, "TEXT"] | None = None
    ann: Literal["flat", "ivf", "hnsw"] | None = None
    num_lists: Count | None = None
    num_probes: Count | None = None
    num_links: Count | None = None
    search_width: Count | None = None
    batch_size: Count | None = None


class LanceOptions(Struct):
    """What LanceDB searches.

    Attributes:
        lance_search: words, vectors or both (default: text)
    """

    lance_search: Literal["text", "dense", "hybrid"] | None = None


def _run(args: argparse.Namespace) -> None:
    _check_options(args)
    if args.update:
        _update(args.update, args.json, args.rerank)
    else:
        _build(args)
    if args.watch:
        _watch(args.update or args.out, args.json)


fill = command(
    _run,
    IndexOptions,
    group("files of a folder", FileOptions, about="GLOB is a pattern as in a .gitignore: *.md, drafts/, /top.txt"),
    group("passages", PassageOptions),
    group("word search (bm25, hybrid, lance)", WordOptions),
    group("search by meaning (dense, hybrid, lance)", MeaningOptions),
    group("LanceDB (lance)", LanceOptions, about="passages and vectors stay on disk; options as above"),
    description="""\
Make an index of every SOURCE: a folder of documents (.md .adoc .rst .txt .html .pdf .docx .pptx .xlsx .csv .tsv .ipynb
.epub .eml), one document, or a JSON Lines file (.jsonl, .ndjson, .jsonl.gz, .jsonl.zst) with {"id", "title", "text"} or
{"id", "contents"} on each line. With --update, bring an index up to date: its sources and options are remembered, and
only files that have changed are read and embedded.
""",
)


def _build(args: argparse.Namespace) -> None:
    from quaere.api.index import index_settings
    from quaere.search.index_build import build_index

    # Options have the names of the settings' fields; what was not given is the settings' own default.
    given = {name: value for name, value in vars(args).items() if value is not None}
    started = time.monotonic()
    with interruptible("an index that was there stays as it was"), show_progress() as progress:
        index = build_index(args.sources, args.out, index_settings(given), progress, force=args.force)
    _print_index(index, time.monotonic() - started, args.json)


def _check_options(args: argparse.Namespace) -> None:
    if not args.update:
        if not args.sources:
            raise BadInput("no SOURCE is named", hint="quaere index FOLDER --out DIR, or quaere index --update DIR")
        if not args.out:
            raise BadInput("--out is missing", hint="quaere index FOLDER --out DIR")
        return
    apart = {"run", "update", "watch", "json", "rerank"}
    given = [name for name, value in vars(args).items() if name not in apart and value not in (None, False, [])]
    if not args.gitignore or given != ["gitignore"]:
        index = shlex.quote(str(args.update))
        raise BadInput(
            "--update takes no SOURCE, and no option but --rerank, --watch and --json: the others are remembered",
            hint=f"quaere index --update {index}, or quaere index SOURCE --out {index} --force ...",
        )


def _update(path: Path, json: bool, rerank: str | None = None) -> None:
    from quaere.search.index_build import update_index

    started = time.monotonic()
    with interruptible("the index stays as it was"), show_progress() as progress:
        updated = update_index(path, progress, rerank=rerank)
    _print_index(updated.index, time.monotonic() - started, json, updated.counts)


def _watch(path: Path, json: bool) -> None:
    """Update whenever the sources have changed. An update that fails is said, and tried again after the next change."""
    from quaere.search.index_build import wait_for_changes

    passed_over: list[SourceFile] = []
    try:
        say_line(f"watching the sources of {path}, Ctrl-C ends")
        while True:
            files = wait_for_changes(path, passed_over)
            try:
                _update(path, json)
            except QuaereError as error:  # a file that is broken, or a server of embeddings that is away
                say_line(f"{error}; the index stays as it was")
                passed_over = files
    except KeyboardInterrupt:
        say_line("no longer watching")


# ---------------------------------------------------------------------------------------------------- what is printed


def _print_index(index: Index, seconds: float, json: bool, counts: UpdateCounts | None = None) -> None:
    if json:
        manifest = msgspec.to_builtins(index.manifest)
        kept = {key: value for key, value in manifest.items() if key not in ("kind", "file_sizes")}
        summary = {"index": str(index.path), **kept, **({"update": counts} if counts else {})}
        print(msgspec.json.encode(summary).decode(), flush=True)
        return
    if counts:
        changed = f"{counts.num_added} added, {counts.num_changed} changed, {counts.num_removed} removed"
        print(f"files: {changed}, {counts.num_unchanged} unchanged; {counts.num_read} read")
        embedded = f", {counts.num_embedded} embedded" if index.manifest.settings.has_vectors else ""
        print(f"passages: {counts.num_kept} kept, {len(index) - counts.num_kept} new{embedded}")
    _print_summary(index, seconds)


def _print_summary(index: Index, seconds: float) -> None:
    manifest, corpus = index.manifest, index.manifest.corpus
    size = f"{count(manifest.num_passages, 'passage')} of {count(manifest.num_documents, 'document')}"
    print(printable_line(f"{index.path}: {size}, engine {manifest.settings.summary}, {seconds:.1f} s"))
    missing = ((needed.split(": ", 1), num) for needed, num in corpus.missing.items())  # a library, how to get it
    notes = [
        ("left out, exact duplicates", corpus.num_duplicates),
        ("left out, no text", corpus.num_empty),
        ("left out, other kinds of file", _counts(corpus.ignored_suffixes)),
        ("left out by a .gitignore", corpus.num_gitignored),
        ("left out by --include and --exclude", corpus.num_excluded),
        *((f"left out, {why}", f"{num} ({hint})") for (why, hint), num in missing),
        ("left out, not readable", corpus.num_unreadable),
        *_named(corpus.unreadable, corpus.num_unreadable),
        ("read in part", corpus.num_problems),
        *_named(corpus.problems, corpus.num_problems),
        ("not in UTF-8, read as", _counts(corpus.other_encodings)),
    ]
    for note, value in notes:
        if value:
            print(printable_line(f"  {note}: {value}"))  # files may be called anything
    print(f'next: quaere search "..." --index {shlex.quote(str(index.path))}')


def _named(reasons: list[str], total: int) -> list[tuple[str, str]]:
    """Files with their reasons, as lines below their count."""
    lines = [("  " + name, reason) for name, _, reason in (line.partition(": ") for line in reasons[:_MAX_SHOWN])]
    return [*lines, ("  and more", f"{total - _MAX_SHOWN} (in manifest.json)")] if total > _MAX_SHOWN else lines


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
