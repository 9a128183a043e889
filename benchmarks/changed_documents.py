"""What `quaere learn --update` finds and costs after 5 % of a village's records have changed.

    python benchmarks/changed_documents.py --articles 1000 --seeds 0 1 --out changed

As in `make demo`, a model made on the spot learns to search the records of a village. Then one name is replaced in each
of some records, and one in ten of these is removed. A question is stale if its sentence is gone. Printed are the stale
questions that were found, those retired besides, the time beside that of the first learning (each with its index; the
form was taught before), exact match on the old questions held back, and how many questions whose answer was replaced
get the new one. The tiny model writes no questions and reads no page outside its form: it retires every question of a
changed record, and practises on its own.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import quaere
from quaere.api.checked_questions import read_checked
from quaere.search.chunks import ChunkSettings
from quaere.search.index import IndexSettings
from quaere.search.index_build import build_index, update_index
from quaere.warmup.documents.held_back import list_documents
from quaere.worlds import World, generate_world, write_world
from quaere.worlds.dice import Dice

SHORT = {"max_turns": 2, "topk": 1, "turn_tokens": 24, "sequence_tokens": 128}
FORM = {"style": "brief", "facts": (1,), "proposer_hops": (1,), "articles": 900, "episodes": 800, "epochs": 6}
FORM |= {"learning_rate": 4e-3, "tool_response_tokens": 32, **SHORT}
STEPS = 80  # the most that `learn` plans, which fit into its 30 minutes
ROOT = Path(__file__).parents[1]


def change_records(
    world: World, corpus: Path, *, share: float, seed: int, num_questions: int
) -> tuple[dict[str, str], dict[str, str]]:
    """Replace a name in some records and remove others; returns new names by question, and the texts that are left."""
    dice, articles = Dice(seed, "changed records"), list(world.articles())
    chosen = list(range(len(articles)))
    dice.shuffle(chosen)
    chosen = chosen[: int(share * len(articles))]
    names = sorted({support.mention for article in articles for support in article.supports})
    removed, moved = set(chosen[::10]), dict[tuple[str, str], str]()
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    for number in set(chosen) - removed:
        support = dice.pick(articles[number].supports)
        name = dice.pick([name for name in names if name not in articles[number].text])
        sentence = support.evidence.text.replace(support.mention, name, 1)
        rows[number]["text"] = rows[number]["text"].replace(support.evidence.text, sentence)
        moved[articles[number].id, support.relation] = name
    left = [row for number, row in enumerate(rows) if number not in removed]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in left), encoding="utf-8")
    asked = {
        question.text: moved[hop.entity, hop.relation]
        for question in world.questions(num_questions)
        if (hop := question.chain[-1]) and (hop.entity, hop.relation) in moved
    }
    return asked, {row["id"]: row["text"] for row in left}


def read_clocks() -> np.ndarray:
    """Seconds that have passed, and those that this process has computed: other work on the machine takes no part."""
    return np.array([time.monotonic(), time.process_time()])


def run(args: argparse.Namespace, seed: int) -> None:
    """One seed: learn, change, update, and print a line."""
    place = args.out / str(seed)
    world = generate_world(7 + seed, args.articles, "village")
    write_world(world, place / "world", args.questions)
    corpus = place / "world/corpus.jsonl"
    settings = IndexSettings(chunks=ChunkSettings(max_words=3, row_words=0))
    quaere.warmup("drzero", model="blank", out=place / "tiny", settings={**FORM, "seed": seed})
    given: dict[str, Any] = {"model": place / "tiny", "recipe": "drzero", "config": ROOT / "examples/village.yaml"}
    given |= {"questions": place / "world/questions.jsonl", "seed": seed, "out": place / "learned"}
    given["settings"] = {"solver.steps": STEPS, "generation.candidates": 8 * STEPS + 40}  # eight questions a step
    began = read_clocks()
    build_index(corpus, place / "index", settings)
    first = quaere.learn(place / "index", **given)
    first_s = read_clocks() - began
    before = read_checked(place / "learned/questions.jsonl")
    moved, texts = change_records(world, corpus, share=args.share, seed=seed, num_questions=args.questions)
    began = read_clocks()
    update_index(place / "index")
    found = quaere.learn(place / "index", **given, update=True)
    update_s = read_clocks() - began
    assert found.update is not None
    retired = {one.id for one in found.update.retired}
    stale = {one.id for one in before if any(span.text not in texts.get(span.doc_id, "") for span in one.evidence)}
    touched = [one for one in before if found.update.documents.touched.intersection(list_documents(one))]
    with quaere.Agent(found.agent, found.index, **SHORT) as agent:
        answers = {text: agent.ask(text).text for text in list(moved)[: args.asked]}
    old, num_new = found.update.regression, sum(answers[text] == moved[text] for text in answers)
    print(f"seed {seed}: {len(found.update.documents.touched)} of {args.articles} records changed")
    more = f"{len(touched)} checked, {len(retired - stale)} more retired"
    print(f"  {len(stale)} stale, {len(stale & retired)} found; {more}")
    print(
        f"  steps {found.plan.steps} of {first.plan.steps}, drafts at most {found.plan.drafts} of {first.plan.drafts}"
    )
    for name, update, whole in zip(("seconds", "CPU seconds"), update_s, first_s, strict=True):
        print(f"  {name} {update:.1f} after {whole:.1f}: {update / whole:.1%}")
    rights = [one.score.exact_match.mean for one in (first.before, first.after)]
    print(f"  the first learning: exact match {rights[0]:.3f} before, {rights[1]:.3f} after")
    print(f"  old questions held back: {old}; taken: {found.is_trained}")
    print(f"  answered with the new name: {num_new} of {len(answers)}", flush=True)


def main() -> None:
    """Run every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--articles", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--asked", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    for seed in args.seeds:
        run(args, seed)


if __name__ == "__main__":
    main()
