"""Questions that the documents answer and questions that they do not, and how often `quaere ask` says "not found".

    python benchmarks/unanswerable.py write --seed 7 --num 50 --out mixed.jsonl
    quaere world --seed 7 --out world; quaere index world/corpus.jsonl --out index
    quaere ask --questions mixed.jsonl --index index --json > answers.jsonl
    python benchmarks/unanswerable.py count --questions mixed.jsonl answers.jsonl

Besides answerable questions of one fact there are some about a thing of this world whose article does not say what is
asked (unstated), and some about things of another world (elsewhere).
"""

import argparse
import json
from collections import Counter
from itertools import zip_longest
from pathlib import Path

from quaere.worlds import generate_world
from quaere.worlds.dice import Dice
from quaere.worlds.names import capitalise
from quaere.worlds.open_questions import unknown_relations

ARTICLES = 500


def ask_unstated(world, num):
    """Questions about entities of the world for a relation that their articles do not state."""
    graph, dice, asked = world.graph, Dice(world.seed, "unstated"), {}
    while len(asked) < num:
        index = dice.below(len(graph.entities))
        unknown = unknown_relations(graph, index)
        if unknown and (place := (index, dice.pick(unknown))) not in asked:
            wording = dice.pick(graph.relations[place[1]].questions)
            asked[place] = capitalise(wording.replace("{X}", graph.entities[index].name))
    return list(asked.values())


def write(args):
    world = generate_world(args.seed, ARTICLES)
    gold = [question for question in world.questions(8 * args.num) if question.facts == 1]
    elsewhere = generate_world(args.seed + 100, ARTICLES).questions(args.num, facts=(1,))
    kinds = [[{"id": question.id, "question": question.text, "answers": question.answers} for question in gold]]
    for name, texts in (("unstated", ask_unstated(world, args.num)), ("elsewhere", [q.text for q in elsewhere])):
        kinds.append([{"id": f"{name}-{number}", "question": text} for number, text in enumerate(texts)])
    rows = [row for turn in zip_longest(*kinds) for row in turn if row]  # in turn: a run that is stopped has all kinds
    args.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def count(args):
    kinds = {row["question"]: row["id"].partition("-")[0] for row in map(json.loads, args.questions.open())}
    asked, not_found = Counter(), Counter()
    for row in map(json.loads, args.answers.open()):
        scores = row["scores"]
        kind = ("right" if scores["answer/exact_match"] else "wrong") if scores else kinds[row["question"]]
        asked[kind] += 1
        not_found[kind] += not row["found"]
    for kind, num in asked.items():
        print(f"{kind:10} {num:4} asked, {not_found[kind]:4} not found")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True)
    writing = actions.add_parser("write")
    writing.add_argument("--seed", type=int, default=7)
    writing.add_argument("--num", type=int, default=50, help="unanswerable questions of each kind")
    writing.add_argument("--out", type=Path, required=True)
    writing.set_defaults(run=write)
    counting = actions.add_parser("count")
    counting.add_argument("--questions", type=Path, required=True)
    counting.add_argument("answers", type=Path)
    counting.set_defaults(run=count)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
