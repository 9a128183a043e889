"""Questions that need several searches, out of a labelled set with gold passages: the chain exam.

    python benchmarks/chain_exam.py questions.jsonl.gz --index train-index --set hotpot --num 1500 --out exam.jsonl

A question needs several searches if it is no yes/no question, does not contain its answer, and a search with it does
not return all of its gold passages among the first ten. The exam is the first `--num` of them by the SHA-256 of their
ids.
"""

import argparse
import json
from hashlib import sha256
from pathlib import Path

from quaere.records import Question
from quaere.rewards.answers import contains, normalise_answer
from quaere.rollout.question_files import read_questions
from quaere.search.index import Index, open_index

TOPK = 10
BATCH = 256


def is_open(question: Question) -> bool:
    """True if the answer is neither yes nor no nor part of the question."""
    answers = question.answers
    return not any(normalise_answer(said) in ("yes", "no") or contains(question.text, said) for said in answers)


def needs_several(questions: list[Question], index: Index) -> list[bool]:
    """For each question whether a search with it misses a gold passage."""
    found: list[bool] = []
    for first in range(0, len(questions), BATCH):
        some = questions[first : first + BATCH]
        for question, hits in zip(some, index.search([one.text for one in some], TOPK), strict=True):
            found.append(not set(question.gold_ids) <= {hit.passage.doc_id for hit in hits})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--set", default="hotpot", help="the set that is drawn from (default: hotpot)")
    parser.add_argument("--num", type=int, default=1500)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    asked = [one for one in read_questions(args.questions) if one.set == args.set and one.gold_ids and is_open(one)]
    needs = needs_several(asked, open_index(args.index, check_sources=False))
    several = sorted(
        (one for one, is_needed in zip(asked, needs, strict=True) if is_needed),
        key=lambda one: sha256(one.id.encode()).hexdigest(),
    )
    with args.out.open("w") as stream:
        for one in several[: args.num]:
            row = {"id": one.id, "question": one.text, "answers": one.answers, "set": one.set}
            row["gold_ids"] = one.gold_ids
            stream.write(json.dumps(row) + "\n")
    num = min(args.num, len(several))
    print(f"{args.out}: {num} of {len(several)} that need several searches, of {len(asked)} open ones")


if __name__ == "__main__":
    main()
