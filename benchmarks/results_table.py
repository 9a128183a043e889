"""Tables of answering results from items files (`quaere eval --items`): scores, differences, what could be seen.

    quaere eval --model warm ... --items warm-0.items.jsonl.gz          # once for each model and seed
    python benchmarks/results_table.py --arm warm warm-*.jsonl.gz --arm evolved evolved-*.jsonl.gz --baseline warm
    python benchmarks/results_table.py --arm ... --where set=2wiki,hotpot --digits 5-f

An arm is a name and one file per seed. Only questions that stand in every file count. An arm of several seeds has a row
for each and one for their mean, for which a question's score is its mean over the seeds.

Brackets hold 95 % bootstrap intervals over questions: what another seed would have given is not in them. Differences
are paired, question by question, against the mean over the baseline's seeds. Behind each stands, in parentheses, the
smallest difference that so many questions would show with a chance of 80 %: 2.8 times the standard error of the paired
difference (`quaere.evaluation.intervals.smallest_difference`).

Where all files have evidence, there are its shares: *verbatim*, *joint* (exact match, and a judge or the string check
accepts the span) where all were judged, and *gold joint* (exact match, and a verbatim span of a gold passage that holds
the answer) over the questions whose gold every file knows.

`--where set=A,B` (or `facts=2,3`) adds a table of those questions alone. `--digits 5-f` keeps only the questions whose
sha256(id) begins with such a hex digit: a split that needs no list, e.g. 0-4 to choose by and 5-f to report.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from msgspec import Struct
from tables import as_table

from quaere.errors import BadInput
from quaere.evaluation.intervals import bootstrap_interval, paired_difference, smallest_difference
from quaere.evaluation.qa.items import Item, read_items

HEX = "0123456789abcdef"
FIELDS = ("set", "facts")
MEASURES = {"exact_match": "EM", "f1": "F1"}
# Shares of evidence, each with the field that says whether a question has it.
EVIDENCE = {
    "verbatim": ("verbatim", "present"),
    "joint": ("joint", "supported"),
    "gold_joint": ("gold joint", "gold"),
}
Key = tuple[str, str]
Seed = dict[Key, Item]  # the results of one file, by question


class Arm(Struct, frozen=True):
    """A named system with the results of each of its seeds.

    Arm(name="evolved", seeds=[{("q1", "3f0c9a51"): Item(...)}, {...}], labels=["seed 1", "seed 3"])
    """

    name: str
    seeds: list[Seed]
    labels: list[str]


class Group(Struct, frozen=True):
    """Questions that make up one table.

    Group(name="set = 2wiki, hotpot", keys=[("q1", "3f0c9a51"), ...])
    """

    name: str
    keys: list[Key]


# ------------------------------------------------------------------------------------------------------------ choosing


def parse_digits(text: str) -> frozenset[str]:
    """The hex digits of a list of digits and ranges: parse_digits("0,5-7") == {"0", "5", "6", "7"}."""
    found: set[str] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (len(first) == len(last) == 1 and first in HEX and last in HEX and first <= last):
            raise BadInput(f"--digits takes hex digits and ranges such as 5-f or 0,2,4-7, not {text}")
        found.update(HEX[HEX.index(first) : HEX.index(last) + 1])
    return frozenset(found)


def first_digit(name: str) -> str:
    """The hex digit a question's id is sorted by."""
    return hashlib.sha256(name.encode()).hexdigest()[0]


def parse_where(text: str) -> tuple[str, tuple[str, ...]]:
    """The field and its values: parse_where("set=2wiki,hotpot") == ("set", ("2wiki", "hotpot"))."""
    field, equals, values = text.partition("=")
    wanted = tuple(value.strip() for value in values.split(",") if value.strip())
    if field not in FIELDS or not equals or not wanted:
        raise BadInput(f"--where takes {' or '.join(f'{name}=A,B' for name in FIELDS)}, not {text}")
    return field, wanted


def shared_keys(arms: Sequence[Arm]) -> list[Key]:
    """The questions that stand in every file, in the order of the first."""
    seeds = [seed for arm in arms for seed in arm.seeds]
    return [key for key in seeds[0] if all(key in seed for seed in seeds)]


def make_groups(arms: Sequence[Arm], keys: list[Key], wheres: Sequence[str]) -> list[Group]:
    """All questions, then those of each condition."""
    first = arms[0].seeds[0]
    groups = [Group("all", keys)]
    for field, wanted in map(parse_where, wheres):
        chosen = [key for key in keys if str(getattr(first[key], field)) in wanted]
        groups.append(Group(f"{field} = {', '.join(wanted)}", chosen))
    for group in groups:
        if not group.keys:
            raise BadInput(f"no question is left that every file has ({group.name})")
    return groups


# ------------------------------------------------------------------------------------------------------------- scoring


def mean_values(seeds: Sequence[Seed], keys: Sequence[Key], value: Callable[[Item], float]) -> list[float]:
    """Of each question its mean over the seeds."""
    return [fmean(value(seed[key]) for seed in seeds) for key in keys]


def measure_values(seeds: Sequence[Seed], keys: Sequence[Key], measure: str) -> list[float]:
    """The same of a field."""
    return mean_values(seeds, keys, lambda item: float(getattr(item, measure)))


def known_keys(arms: Sequence[Arm], keys: Sequence[Key]) -> dict[str, list[Key]]:
    """By share of evidence, the questions for which every file has it; shares without such a question are left out.

    Verbatim and joint are shares of all questions, so that a file without them leaves them out altogether.
    """
    seeds = [seed for arm in arms for seed in arm.seeds]
    found = {}
    for measure, (_, field) in EVIDENCE.items():
        known = [key for key in keys if all(getattr(seed[key], field) is not None for seed in seeds)]
        if known and (measure == "gold_joint" or len(known) == len(keys)):
            found[measure] = known
    return found


def say_score(values: Sequence[float]) -> str:
    """A mean with its interval, in percent: `31.0 [27.0, 35.0]`."""
    found = bootstrap_interval(values)
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def say_difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """A paired difference, its interval and the smallest one that could be seen: `+6.0 [+2.0, +10.0] (5.6)`."""
    found, least = paired_difference(ours, theirs), smallest_difference(ours, theirs)
    mean, low, high = (f"{100 * value:+.1f}" for value in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}] ({100 * least:.1f})"


def make_row(
    name: str,
    seeds: Sequence[Seed],
    baseline: Sequence[Seed],
    keys: Sequence[Key],
    sets: Sequence[str],
    evidence: Mapping[str, Sequence[Key]],
) -> list[str]:
    """One row: scores, exact match by set, searches, unanswered, evidence, and differences if there is a baseline."""
    row = [name, *(say_score(measure_values(seeds, keys, measure)) for measure in MEASURES)]
    for one in sets:
        within = [key for key in keys if seeds[0][key].set == one]
        row.append(f"{100 * fmean(measure_values(seeds, within, 'exact_match')):.1f}" if within else "")
    row.append(f"{fmean(measure_values(seeds, keys, 'num_searches')):.2f}")
    row.append(f"{100 * fmean(mean_values(seeds, keys, lambda item: item.end != 'answered')):.1f}")
    row += [say_score(measure_values(seeds, known, measure)) for measure, known in evidence.items()]
    compared = dict.fromkeys(MEASURES, keys) | dict(evidence)
    for measure, chosen in compared.items():
        sides = [measure_values(side, chosen, measure) for side in (seeds, baseline) if side]
        row.append(say_difference(*sides) if baseline else "")
    return row


def make_table(arms: Sequence[Arm], baseline: Arm, group: Group) -> str:
    """A Markdown table of a group of questions: for each arm its seeds, and their mean where there are several."""
    first = arms[0].seeds[0]
    sets = sorted({first[key].set for key in group.keys} - {""})
    head = ["", *(f"{said} %" for said in MEASURES.values()), *(f"EM %, {one}" for one in sets)]
    evidence = known_keys(arms, group.keys)
    shares = {measure: f"{EVIDENCE[measure][0]} %" for measure in evidence}
    if "gold_joint" in shares:
        shares["gold_joint"] += f" of {len(evidence['gold_joint']):,}"
    compared = [*MEASURES.values(), *(EVIDENCE[name][0] for name in evidence)]
    head += ["searches", "unanswered %", *shares.values(), *(f"{said} - {baseline.name}" for said in compared)]
    rows = []
    for arm in arms:
        told = [(arm.name, arm.seeds)]
        if len(arm.seeds) > 1:
            told = [(f"{arm.name}, {label}", [seed]) for label, seed in zip(arm.labels, arm.seeds, strict=True)]
            told.append((f"{arm.name}, mean of {len(arm.seeds)}", arm.seeds))
        against = [] if arm.name == baseline.name else baseline.seeds
        rows += [make_row(name, seeds, against, group.keys, sets, evidence) for name, seeds in told]
    return as_table(head, rows)


# ---------------------------------------------------------------------------------------------------------------- main


def read_seed(path: Path, digits: frozenset[str]) -> Seed:
    """The results of a file, of the questions whose ids' hashes begin with such a digit."""
    return {item.key: item for item in read_items(path) if first_digit(item.id) in digits}


def label_seeds(paths: Sequence[str]) -> list[str]:
    """What tells the files apart: the numbers their names end with, or else their places.

    label_seeds(["eve-1.items.jsonl.gz", "eve-3.items.jsonl.gz"]) == ["seed 1", "seed 3"]
    """
    found = [re.search(r"-(\d+)$", Path(path).name.partition(".")[0]) for path in paths]
    numbers = [match[1] for match in found if match]
    if len(set(numbers)) < len(paths):
        numbers = [str(place) for place in range(len(paths))]
    return [f"seed {number}" for number in numbers]


def read_arms(given: Sequence[Sequence[str]], digits: frozenset[str]) -> list[Arm]:
    """The arms of the command line, each a name and its files."""
    arms = [Arm(name, [read_seed(Path(path), digits) for path in paths], label_seeds(paths)) for name, *paths in given]
    for arm in arms:
        if not arm.seeds:
            raise BadInput(f"arm {arm.name} has no file", hint="--arm NAME FILE.items.jsonl.gz ...")
    if len({arm.name for arm in arms}) < len(arms):
        raise BadInput("two arms have the same name; an arm's seeds go behind one --arm")
    return arms


def report(args: argparse.Namespace) -> str:
    """Everything that is printed: a table for each group, what was left out, and a legend."""
    arms = read_arms(args.arm, parse_digits(args.digits))
    named = {arm.name: arm for arm in arms}
    if args.baseline is not None and args.baseline not in named:
        raise BadInput(f"--baseline {args.baseline} is none of the arms: {', '.join(named)}")
    baseline = named[args.baseline] if args.baseline is not None else arms[0]
    keys = shared_keys(arms)
    digits = "" if args.digits == "0-f" else f", sha256(id) begins with {args.digits}"
    parts = [
        f"{group.name}: {len(group.keys):,} questions{digits}\n\n{make_table(arms, baseline, group)}"
        for group in make_groups(arms, keys, args.where)
    ]
    if left_out := len({key for arm in arms for seed in arm.seeds for key in seed}) - len(keys):
        parts.append(f"{left_out:,} questions that not every file has are left out")
    parts.append(
        "In brackets the 95 % bootstrap interval over questions; in parentheses the smallest difference they would "
        "show with a chance of 80 %: 2.8 standard errors of the paired difference."
    )
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", nargs="+", action="append", required=True, metavar=("NAME", "FILE"))
    parser.add_argument("--baseline", metavar="NAME", help="the arm that others are compared with (default: the first)")
    parser.add_argument("--where", action="append", default=[], metavar="set=A,B", help="a table of these alone, too")
    parser.add_argument("--digits", default="0-f", metavar="5-f", help="first hex digits of sha256(id) to keep")
    try:
        print(report(parser.parse_args(argv)))
    except BadInput as error:
        print(f"{parser.prog}: {error}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
