"""`quaere world`: write a fictional encyclopedia with gold questions."""

import argparse
import sys
from typing import Literal

import msgspec

from quaere.api.printing import count
from quaere.cli.options import JsonOption, command
from quaere.setting_types import Count, Folder
from quaere.worlds import generate_world, write_world
from quaere.worlds.world import check_destination


class WorldOptions(JsonOption, kw_only=True):
    """Options of `quaere world`.

    Attributes:
        seed: seed of the world
        articles: number of articles, 200 to 100000
        out: folder to write to, new or empty
        family: the set of kinds, relations and wordings; evaluation and warmup share none; village and hamlet have up
            to 1,000 articles of three-word records, for models made from nothing
        questions: number of gold questions (default: one per article, up to 1000)
        force: replace the world in a folder that is not empty
        json: print world.json instead of a summary
    """

    seed: int = 7
    articles: int = 500
    out: Folder
    family: Literal["evaluation", "warmup", "village", "hamlet"] = "evaluation"
    questions: Count | None = None
    force: bool = False


def _run(args: argparse.Namespace) -> None:
    check_destination(args.out, args.force)  # reports an unusable folder before the work, not after
    world = generate_world(args.seed, args.articles, args.family)
    show = _show if sys.stderr.isatty() else None
    manifest = write_world(world, args.out, args.questions, args.force, show)
    if show:
        print("\r\x1b[K", end="", file=sys.stderr)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(manifest)).decode())
        return
    by_facts = ", ".join(
        f"{num} of {count(int(facts), 'fact')}" for facts, num in manifest.num_questions_by_facts.items()
    )
    print(f"{args.out}: {manifest.num_articles} articles, {manifest.num_facts} facts (seed {manifest.seed})")
    print(f"{count(manifest.num_questions, 'question')}" + (f": {by_facts}" if by_facts else ""))


fill = command(
    _run,
    WorldOptions,
    description="""\
Write a seeded fictional encyclopedia: corpus.jsonl, questions.jsonl and world.json. The same arguments give the same
bytes everywhere.
""",
)


def _show(what: str, num: int) -> None:
    if num % 100 == 0:
        print(f"\r\x1b[K{num} {what}", end="", file=sys.stderr, flush=True)
