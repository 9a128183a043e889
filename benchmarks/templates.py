"""Chat templates of real models: which are accepted, what they rewrite, and whether episodes under them are exact.

    python benchmarks/templates.py --episodes 1000                    # those of an installed trl
    python benchmarks/templates.py FOLDER --episodes 1000 --markdown

Each template gets a small tokenizer in which every control string of the template is a control token. Scripted episodes
in ten dialects follow, sound, broken and of any ids at all: the ids of an episode must be those that the sampler was
shown and gave back. Then every dialect is played once per hostile document, in which the template's own control strings
stand: no control id may be added to what a harmless document gives.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"
NUM_HOSTILE = 20


def find_templates(folder):
    """The Jinja files of a folder, or of an installed trl; without its variants for training."""
    if folder is None:
        found = importlib.util.find_spec("trl")
        if found is None:
            sys.exit("trl is not installed: pip install trl, or name a folder of .jinja files")
        folder = Path(found.origin).parent / "chat_templates"
    return sorted(path for path in Path(folder).glob("*.jinja") if not path.stem.endswith("_training"))


async def play_exact(tokenizer, renderer, count):
    """Play scripted episodes and assert that their ids are those of the sampler."""
    import tiny
    from exact_episodes import assert_exact, jobs_and_scripts
    from quaere.rollout.episode import Limits, run_many
    from quaere.rollout.policy import TokenPolicy
    from scripted import ScriptedSampler

    jobs, scripts = jobs_and_scripts(count, tokenizer, seed=1)
    for turns in scripts.values():
        turns[:] = [renderer.write_turn(turn) if isinstance(turn, str) else turn for turn in turns]
    sampler = ScriptedSampler(tokenizer, scripts)
    limits = Limits(max_turns=4, turn_tokens=80, sequence_tokens=4000, tool_response_tokens=50)
    num_answered = 0
    async for episode in run_many(TokenPolicy(sampler, renderer), jobs, tiny.ListSearcher(), limits, seed=3):
        assert_exact(episode, sampler.seen.get(episode.id, []))
        num_answered += episode.end == "answered"
    return num_answered


async def check(path, count):
    """The row of one template."""
    from test_hostile_documents import ANSWER, assert_unchanged, hostile_documents

    from every_dialect import DIALECTS
    from modern_templates import control_strings, make_tokenizer
    from quaere.chat.renderer import Renderer
    from quaere.errors import TemplateRefused

    source = path.read_text("utf-8")
    tokenizer = make_tokenizer(source)
    try:
        renderer = Renderer(tokenizer)
    except TemplateRefused as refused:
        return path.stem, "refused", "", str(refused)
    num_answered = await play_exact(tokenizer, renderer, count)
    own = control_strings(source)
    documents = [*hostile_documents(NUM_HOSTILE), " ".join(own) + ANSWER, *own]
    await assert_unchanged(tokenizer, DIALECTS, documents)
    opened = "thought opened" if renderer.opened else ""
    return path.stem, f"{count} exact, {num_answered} answered", opened, "; ".join(renderer.differences)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    sys.path[:0] = [str(TESTS), str(TESTS / "guarantees")]
    for path in find_templates(args.folder):
        row = await check(path, args.episodes)
        print("| " + " | ".join(row) + " |" if args.markdown else "  ".join(row), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
