"""Does the verifier's value tell good questions from others? A person's labels beside the values of the same questions.

    quaere curriculum RUN --kept --json > kept.json
    python benchmarks/verified_labels.py claims kept.json --key key.json --out claims.jsonl
    quaere verify claims.jsonl --model MODEL --out values.json
    python benchmarks/verified_labels.py table values.json --labels labels.tsv --key key.json

Labels and key are those of `blind_sample.py`. The table has a row for each kind of question and label: how often the
answer was given with the sentence and without it, and the value V, their difference. Below it is the chance that a
question labelled good has a higher V than another one (ties count half), of any kind and of the same: 0.5 is no better
than a coin. Brackets hold the 95 % bootstrap interval over questions.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from guarded_questions import name_kind
from tables import as_table

from quaere.rewards.self_evaluation import auroc

NUM_RESAMPLES = 5000
MEANS = ("chance_with", "chance_without", "value")


class Labelled(NamedTuple):
    """A question's kind and label, and the chances of its answer."""

    kind: str
    label: str
    chance_with: float
    chance_without: float

    @property
    def value(self) -> float:
        return self.chance_with - self.chance_without


def make_claims(kept: Sequence[Mapping[str, Any]], key: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """What `quaere verify` reads, of the questions of the key."""
    rows = {row["id"]: row for row in kept}
    found = [rows[entry["id"]] for entry in key.values()]
    return [{name: row[name] for name in ("id", "question", "answers")} | {"evidence": row["span"]} for row in found]


def read_labelled(values: Path, labels: Path, key: Path) -> list[Labelled]:
    """Every labelled question with its value."""
    ids = {number: entry["id"] for number, entry in json.loads(key.read_text(encoding="utf-8")).items()}
    items = {item["claim"]["id"]: item["support"] for item in json.loads(values.read_text(encoding="utf-8"))["items"]}
    with labels.open(encoding="utf-8", newline="") as stream:
        told = {ids[row["number"]]: row["label"] for row in csv.DictReader(stream, delimiter="\t")}
    return [
        Labelled(name_kind(name), label, items[name]["chance_with"], items[name]["chance_without"])
        for name, label in told.items()
        if items[name] is not None  # it could not be verified
    ]


def separation(found: Sequence[Labelled], *, by_kind: bool) -> float:
    """Chance that a good question has a higher value than another one; with `by_kind`, than another one of its kind."""
    pairs: list[tuple[int, float]] = []
    for kind in {one.kind for one in found} if by_kind else {""}:
        of_kind = [one for one in found if kind in ("", one.kind)]
        labels = [one.label == "good" for one in of_kind]
        chance = auroc([one.value for one in of_kind], labels)
        if chance is not None:
            pairs.append((sum(labels) * labels.count(False), chance))
    num = sum(num for num, _ in pairs)
    return sum(num * chance for num, chance in pairs) / num if num else float("nan")


def resample(found: Sequence[Labelled], *, by_kind: bool, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of their separation; good and other questions of each kind are drawn apart."""
    dice, groups = random.Random(seed), defaultdict(list)
    for one in found:
        groups[one.kind, one.label == "good"].append(one)
    drawn = sorted(
        separation([one for group in groups.values() for one in dice.choices(group, k=len(group))], by_kind=by_kind)
        for _ in range(NUM_RESAMPLES)
    )
    return drawn[NUM_RESAMPLES // 40], drawn[-NUM_RESAMPLES // 40 - 1]


def show(found: Sequence[Labelled]) -> str:
    """The table, and how well the value tells good questions from others."""
    groups = [(kind, is_good) for kind in (*sorted({one.kind for one in found}), "all") for is_good in (True, False)]
    rows = []
    for kind, is_good in groups:
        of_group = [one for one in found if kind in (one.kind, "all") and (one.label == "good") == is_good]
        if of_group:
            means = [fmean(getattr(one, name) for one in of_group) for name in MEANS]
            label = "good" if is_good else "other"
            rows.append([kind, label, str(len(of_group)), *(f"{mean:.2f}" for mean in means)])
    lines = [as_table(["", "label", "questions", "with the sentence", "without", "V"], rows), ""]
    for by_kind, told in ((False, "of any kind"), (True, "of its kind")):
        low, high = resample(found, by_kind=by_kind)
        lines.append(f"good above another {told}: {separation(found, by_kind=by_kind):.2f} [{low:.2f}, {high:.2f}]")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True, dest="step")
    claims = steps.add_parser("claims")
    claims.add_argument("kept", type=Path)
    claims.add_argument("--out", type=Path, required=True)
    table = steps.add_parser("table")
    table.add_argument("values", type=Path)
    table.add_argument("--labels", type=Path, required=True)
    for one in (claims, table):
        one.add_argument("--key", type=Path, required=True)
    args = parser.parse_args(argv)
    if args.step == "table":
        print(show(read_labelled(args.values, args.labels, args.key)))
        return
    kept, key = (json.loads(path.read_text(encoding="utf-8")) for path in (args.kept, args.key))
    made = make_claims(kept, key)
    args.out.write_text("".join(json.dumps(claim, ensure_ascii=False) + "\n" for claim in made), encoding="utf-8")
    print(f"{args.out}: {len(made)} claims")


if __name__ == "__main__":
    main()
