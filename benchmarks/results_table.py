"""Tables of answering results from items files (`quaere eval --items`): scores, differences, what could be seen.

    quaere eval --model warm ... --items warm-0.items.jsonl.gz          # once for each model and seed
    python benchmarks/results_table.py --arm warm warm-*.jsonl.gz --arm evolved evolved-*.jsonl.gz --baseline warm
    python benchmarks/results_table.py --arm ... --where set=2wiki,hotpot --digits 5-f

An arm is a name and one file per seed. Only questions that are in every file count. An arm of several seeds has a row
for each and one for their mean.

Brackets hold 95 % intervals: for one seed over questions only, for a mean over questions and seeds (hierarchical
bootstrap), with Student's interval over the seeds' means after it, since the bootstrap of two or three seeds is too
narrow. Differences are paired by question, against the mean over the baseline's seeds; with `--same-start` the n-th
file of an arm was trained from the n-th of the baseline, and each seed is compared with its own start. In parentheses
is the smallest difference that would be shown with a chance of 80 %: 2.8 standard errors.

A second table has exact match by kind of answer and by searches needed, where the files know them, and in `points` what
a group adds to the whole difference. A third says of yes/no questions and choices how often an answer takes one of the
two options, and how often that one is right, where chance is 50 %. A model that answers nearly all yes/no questions of
a set, or all its choices, with the same option is named below.

Where all files have evidence, there are its shares: *verbatim*, *joint* (exact match, and a judge or the string check
accepts the span) where all were judged, and *gold joint* (exact match, and a verbatim span of a gold passage that holds
the answer) over the questions whose gold every file knows.

Scores are over questions with accepted answers. Where a file has abstentions, questions without an answer or the
confidence of answers, another table has the share of unanswerable questions that were *refused*, the share of the
baseline's right answers *lost* because the arm abstained, and the share of wrong questions among the 80 % of all
questions that the arm is surest of (`evaluation/qa/abstaining.py`). In an arm whose name ends with `@0.25`, answers
with a confidence below 0.25 count as abstentions.

`--where set=A,B` (or `facts=2,3`, `kind=name,number`) adds a table of those questions alone. `--digits 5-f` keeps only
the questions whose sha256(id) begins with such a hex digit: a split that needs no list, 0-4 to choose by and 5-f to
report. A copy with hidden answers is on the side of its question.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from msgspec import Struct, structs
from tables import as_table

from quaere.errors import BadInput
from quaere.evaluation.intervals import SeededInterval, seeded_difference, seeded_interval
from quaere.evaluation.qa.abstaining import find_lost, score_abstention
from quaere.evaluation.qa.answer_kinds import CLOSED, KINDS, find_constants, say_constant
from quaere.evaluation.qa.items import Item, read_items
from quaere.rewards.abstention import original_id

HEX = "0123456789abcdef"
FIELDS = ("set", "facts", "kind")
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


class Compared(Struct, frozen=True):
    """A row of the table: one seed or all seeds of an arm, and the seeds it is compared with (none for the baseline).

    Compared(name="evolved, mean of 3", seeds=[{...}, ...], baseline=[{...}, ...], same_start=True)
    """

    name: str
    seeds: list[Seed]
    baseline: list[Seed]
    same_start: bool = False


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
    """The hex digit a question's id is sorted by; a copy with hidden answers goes with its question."""
    return hashlib.sha256(original_id(name).encode()).hexdigest()[0]


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


def seed_values(seeds: Sequence[Seed], keys: Sequence[Key], measure: str) -> list[list[float]]:
    """For each seed, a measure of every question."""
    return [[float(getattr(seed[key], measure)) for key in keys] for seed in seeds]


def mean_over(seeds: Sequence[Seed], keys: Sequence[Key], value: Callable[[Item], float]) -> float:
    """A mean over seeds and questions."""
    return fmean(value(seed[key]) for seed in seeds for key in keys)


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


def say_score(seeds: Sequence[Seed], keys: Sequence[Key], measure: str) -> str:
    """A mean with its interval, in percent: `31.0 [27.0, 35.0]`."""
    found = seeded_interval(seed_values(seeds, keys, measure))
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def say_difference(found: SeededInterval) -> str:
    """A difference, its interval, the smallest that could be seen, and Student's interval over several seeds.

    `+6.0 [+2.0, +10.0] (5.6), t [+1.5, +10.5]`
    """
    mean, low, high = (f"{100 * value:+.1f}" for value in (found.mean, found.low, found.high))
    said = f"{mean} [{low}, {high}] ({100 * found.smallest:.1f})"
    return f"{said}, t [{100 * found.by_seed.low:+.1f}, {100 * found.by_seed.high:+.1f}]" if found.by_seed else said


def differ(ours: Compared, keys: Sequence[Key], measure: str) -> SeededInterval:
    """The difference of a measure; one seed is compared with the baseline's mean, over questions only."""
    mine, theirs = (seed_values(seeds, keys, measure) for seeds in (ours.seeds, ours.baseline))
    if len(mine) == 1:
        theirs = [[fmean(values) for values in zip(*theirs, strict=True)]]
    return seeded_difference(mine, theirs, same_start=ours.same_start)


def make_row(
    ours: Compared, keys: Sequence[Key], sets: Sequence[str], evidence: Mapping[str, Sequence[Key]]
) -> list[str]:
    """One row: scores, exact match by set, searches, unanswered, evidence, and differences if there is a baseline."""
    seeds = ours.seeds
    row = [ours.name, *(say_score(seeds, keys, measure) for measure in MEASURES)]
    for one in sets:
        within = [key for key in keys if seeds[0][key].set == one]
        row.append(f"{100 * mean_over(seeds, within, lambda item: item.exact_match):.1f}" if within else "")
    row.append(f"{mean_over(seeds, keys, lambda item: item.num_searches):.2f}")
    row.append(f"{100 * mean_over(seeds, keys, lambda item: item.end != 'answered'):.1f}")
    row += [say_score(seeds, known, measure) for measure, known in evidence.items()]
    compared = dict.fromkeys(MEASURES, keys) | dict(evidence)
    row += [say_difference(differ(ours, chosen, name)) if ours.baseline else "" for name, chosen in compared.items()]
    return row


def compared_rows(arm: Arm, baseline: Arm, same_start: bool) -> list[Compared]:
    """An arm's seeds, each with what it is compared with, and their mean where there are several."""
    theirs = [] if arm.name == baseline.name else baseline.seeds
    if len(arm.seeds) == 1:
        return [Compared(arm.name, arm.seeds, theirs, same_start and len(theirs) == 1)]
    starts = [[start] for start in theirs] if same_start and theirs else [theirs] * len(arm.seeds)
    rows = [
        Compared(f"{arm.name}, {label}", [seed], start)
        for label, seed, start in zip(arm.labels, arm.seeds, starts, strict=True)
    ]
    return [*rows, Compared(f"{arm.name}, mean of {len(arm.seeds)}", arm.seeds, theirs, same_start and bool(theirs))]


def make_table(arms: Sequence[Arm], baseline: Arm, group: Group, same_start: bool) -> str:
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
    told = [row for arm in arms for row in compared_rows(arm, baseline, same_start)]
    return as_table(head, [make_row(row, group.keys, sets, evidence) for row in told])


def split_group(arms: Sequence[Arm], group: Group) -> list[Group]:
    """The questions by kind of answer and by searches needed, where there are several and files know them."""
    seeds = [seed for arm in arms for seed in arm.seeds]
    kinds = {key: next((seed[key].kind for seed in seeds if seed[key].kind), "") for key in group.keys}
    needed = {key: max(seed[key].searches_needed for seed in seeds) for key in group.keys}
    found = [Group(kind, [key for key in group.keys if kinds[key] == kind]) for kind in KINDS]
    is_open = [key for key in group.keys if kinds[key] not in CLOSED]
    if len(is_open) < len(group.keys):
        found.append(Group("neither yes/no nor choice", is_open))
    if len(set(needed.values())) > 1:
        for number in sorted(set(needed.values())):
            name = f"searches needed: {number or 'unknown'}"
            found.append(Group(name, [key for key in group.keys if needed[key] == number]))
    return [one for one in found if one.keys]


def make_split(arms: Sequence[Arm], baseline: Arm, group: Group, same_start: bool) -> str:
    """Exact match by group: of each arm, and the differences to the baseline with what they add to the whole."""
    groups = split_group(arms, group)
    if not groups:
        return ""
    means = [compared_rows(arm, baseline, same_start)[-1] for arm in arms]
    head = ["EM %", "questions", *(arm.name for arm in arms)]
    for arm, mean in zip(arms, means, strict=True):
        head += [f"{arm.name} - {baseline.name}", "points"] if mean.baseline else []
    rows = []
    for one in groups:
        row = [one.name, f"{len(one.keys):,}"]
        row += [f"{100 * mean_over(mean.seeds, one.keys, lambda item: item.exact_match):.1f}" for mean in means]
        for mean in means:
            if mean.baseline:
                found = differ(mean, one.keys, "exact_match")
                row += [say_difference(found), f"{100 * found.mean * len(one.keys) / len(group.keys):+.1f}"]
        rows.append(row)
    return "\n\n" + as_table(head, rows)


def make_closed(arms: Sequence[Arm], group: Group) -> str:
    """Of yes/no questions and choices: how often an arm takes an option at all, and how often that one is right.

    Chance is 50 % of those answered with an option, so a gain may be that more answers have the form of an option.
    """
    rows = []
    for kind in CLOSED:
        keys = [key for key in group.keys if all(s[key].kind == kind and s[key].right_option for s in arms[0].seeds)]
        row = [kind, f"{len(keys):,}"]
        for arm in arms:
            taken = [seed[key] for seed in arm.seeds for key in keys if seed[key].option]
            right = sum(item.option == item.right_option for item in taken)
            row += [f"{100 * len(taken) / len(keys) / len(arm.seeds):.1f}"] if keys else [""]
            row += [f"{100 * right / len(taken):.1f}" if taken else ""]
        rows += [row] if keys else []
    head = [
        "closed",
        "questions",
        *(f"{arm.name}: {said}" for arm in arms for said in ("takes an option %", "right %")),
    ]
    return "\n\n" + as_table(head, rows) if rows else ""


def make_abstention(arms: Sequence[Arm], baseline: Arm, group: Group, same_start: bool) -> str:
    """Means over each arm's seeds: unanswerable questions refused, right answers lost, wrong at 80 % coverage."""
    rows = []
    for arm in arms:
        found = [score_abstention([seed[key] for key in group.keys]) for seed in arm.seeds]
        starts = [[start] for start in baseline.seeds] if same_start else [baseline.seeds] * len(arm.seeds)
        lost = [
            find_lost([(seed[key], start[key]) for key in group.keys])
            for seed, own in zip(arm.seeds, starts, strict=True)
            for start in own
            if arm.name != baseline.name
        ]
        refused = [one.refused for one in found if one]
        shares = [[one.mean for one in some if one] for some in (refused, lost)]
        shares.append([one.wrong_at_80 for one in found if one])
        rows.append([arm.name, *(f"{100 * fmean(some):.1f}" if some else "" for some in shares)])
    is_known = any("".join(shares) for _, *shares in rows)
    return "\n\n" + as_table(["abstention", "refused %", "lost %", "wrong at 80 %"], rows) if is_known else ""


def say_constants(arms: Sequence[Arm], group: Group) -> str:
    """A line for every file whose answers to closed questions of a set are nearly all the same."""
    lines = [
        say_constant(row.name, found)
        for arm in arms
        for row in compared_rows(arm, arm, same_start=False)
        if len(row.seeds) == 1
        for found in find_constants(row.seeds[0][key] for key in group.keys)
        if found.is_constant
    ]
    return "\n\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


def make_tables(arms: Sequence[Arm], baseline: Arm, group: Group, same_start: bool) -> str:
    """All tables of a group; scores are over its questions with accepted answers."""
    rated = [key for key in group.keys if arms[0].seeds[0][key].answerable]
    num_left = len(group.keys) - len(rated)
    said = f", {num_left:,} of them without an answer" if num_left else ""
    abstention = make_abstention(arms, baseline, group, same_start)
    if not rated:
        return said + abstention
    scored = Group(group.name, rated)
    return (
        f"{said}\n\n{make_table(arms, baseline, scored, same_start)}"
        + make_split(arms, baseline, scored, same_start)
        + make_closed(arms, scored)
        + abstention
        + say_constants(arms, scored)
    )


# ---------------------------------------------------------------------------------------------------------------- main


def read_seed(path: Path, digits: frozenset[str], least: float = 0.0) -> Seed:
    """The results of a file, of the questions whose ids' hashes begin with such a digit."""
    return {item.key: refuse_below(item, least) for item in read_items(path) if first_digit(item.id) in digits}


def refuse_below(item: Item, least: float) -> Item:
    """The item; as an abstention if it is an answer whose confidence is below `least`."""
    unsure = item.is_answer and item.confidence is not None and item.confidence < least
    return structs.replace(item, abstained=True, exact_match=0.0, f1=0.0) if unsure else item


def least_of(name: str) -> float:
    """The least confidence that the name of an arm ends with, 0 without one: least_of("voted@0.25") == 0.25"""
    found = re.search(r"@([\d.]+)$", name)
    return float(found[1]) if found else 0.0


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
    arms = [
        Arm(name, [read_seed(Path(path), digits, least_of(name)) for path in paths], label_seeds(paths))
        for name, *paths in given
    ]
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
    if args.same_start and any(len(arm.seeds) != len(baseline.seeds) for arm in arms):
        raise BadInput(f"--same-start needs as many files for every arm as for {baseline.name}, in the same order")
    parts = [
        f"{group.name}: {len(group.keys):,} questions{digits}" + make_tables(arms, baseline, group, args.same_start)
        for group in make_groups(arms, keys, args.where)
    ]
    if left_out := len({key for arm in arms for seed in arm.seeds for key in seed}) - len(keys):
        parts.append(f"{left_out:,} questions that not every file has are left out")
    parts.append(
        "In brackets the 95 % interval, of one seed over questions only, of a mean over questions and seeds; t: "
        "Student's over the seeds' means. In parentheses the smallest difference that would show with a chance of 80 %."
    )
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", nargs="+", action="append", required=True, metavar=("NAME", "FILE"))
    parser.add_argument("--baseline", metavar="NAME", help="the arm that others are compared with (default: the first)")
    parser.add_argument("--where", action="append", default=[], metavar="set=A,B", help="a table of these alone, too")
    parser.add_argument(
        "--same-start", action="store_true", help="the n-th file of every arm was trained from the baseline's n-th"
    )
    parser.add_argument("--digits", default="0-f", metavar="5-f", help="first hex digits of sha256(id) to keep")
    try:
        print(report(parser.parse_args(argv)))
    except BadInput as error:
        print(f"{parser.prog}: {error}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
