"""What refusing costs: hidden questions refused against right answers lost, for everything that was tried.

    pip install matplotlib; python benchmarks/refusals.py --plot docs/figures/refusals.svg

A line is a score with its thresholds: an answer below the threshold is refused. A point is a model that was trained to
abstain; *lost* are right answers of the same seed's model that may not abstain. Questions are the copies with hidden
answers (`quaere eval --hide-answers`) and the answerable ones, digits 5 to f (built-in model and `dev` were drawn from
these). The files are in `benchmarks/results`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path

from agreement import from_items
from msgspec import Struct
from results_table import first_digit, parse_digits
from tables import as_table

from quaere.evaluation.qa.items import Item, read_items
from quaere.rewards.abstention import has_hidden_answer

RESULTS = Path(__file__).parent / "results"
ABSTENTION, LEARN = RESULTS / "abstention", RESULTS / "learn"
DIGITS = parse_digits("5-f")
AIM = (3.0, 70.0)


class Curve(Struct, frozen=True):
    """Points (right answers lost %, hidden questions refused %), in order of the threshold.

    Curve("votes", [(3.0, 42.0)], is_line=True)
    """

    name: str
    points: list[tuple[float, float]]
    is_line: bool


def percent(flags: Iterable[bool]) -> float:
    """The share of true ones in percent."""
    found = [*flags]
    return 100 * sum(found) / len(found)


def by_threshold(name: str, right: list[float], hidden: list[float]) -> Curve:
    """A score's curve, from those of right answers and of answers to hidden questions."""
    levels = sorted({*right, *hidden})
    points = [(percent(one < least for one in right), percent(one < least for one in hidden)) for least in levels]
    return Curve(name, points, is_line=True)


def of_votes() -> Curve:
    """The agreement of eight attempts, about manuals."""
    voted, single = (read_items(LEARN / f"exam-{how}.items.jsonl.gz") for how in ("voted", "after"))
    votes = [one for one in from_items(voted, single) if first_digit(one.question) in DIGITS]
    right = [one.agreement for one in votes if one.right]
    return by_threshold("votes of 8, manuals", right, [v.agreement for v in votes if has_hidden_answer(v.question)])


def of_confidence() -> Curve:
    """The probability of the answer, of a model that may not abstain."""
    items = read_items(ABSTENTION / "never-0-dev.items.jsonl.gz")
    right = [one.confidence or 0.0 for one in items if one.answerable and one.right]
    hidden = [one.confidence or 0.0 for one in items if has_hidden_answer(one.id)]
    return by_threshold("probability, dev", right, hidden)


def of_overlap() -> Curve:
    """The overlap rule of the built-in model."""
    with (ABSTENTION / "built-in.tsv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file, delimiter="\t")]
    right, hidden = ([float(row["overlap"]) for row in rows if row["kind"] == kind] for kind in ("right", "hidden"))
    return by_threshold("words of the question, built-in", right, hidden)


def of_trained(name: str, never: str, file: str) -> Curve:
    """A model that was trained to abstain, beside one of the same seed that may not."""
    items = read_items(ABSTENTION / f"{file}.items.jsonl.gz")
    right = {one.key for one in read_items(ABSTENTION / f"{never}.items.jsonl.gz") if one.answerable and one.right}
    lost = percent(one.abstained for one in items if one.key in right)
    return Curve(name, [(lost, percent(map(is_refused, filter(is_hidden, items))))], is_line=False)


def is_hidden(item: Item) -> bool:
    """True for a copy of a question whose answer is hidden."""
    return has_hidden_answer(item.id)


def is_refused(item: Item) -> bool:
    """True if the model abstained."""
    return item.abstained


def draw(curves: list[Curve], out: Path) -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaere"  # the same picture from the same files
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0))
    for number, curve in enumerate(curves):
        line = {"marker": ".", "linewidth": 1.4} if curve.is_line else {"marker": "s", "linestyle": "none"}
        axes.plot(*zip(*curve.points, strict=True), color=f"C{number}", label=curve.name, markersize=5, **line)
    axes.plot(*AIM, marker="*", color="black", linestyle="none", markersize=11, label="aim")
    axes.set(xlim=(-1, 60), ylim=(0, 100), xlabel="right answers lost %", ylabel="hidden questions refused %")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="also draw the curves")
    args = parser.parse_args()
    curves = [of_votes(), of_overlap(), of_confidence()]
    for name, never in (("paid-0.3", "never-0-dev"), ("free-0", "never-0-dev"), ("costly-0", "never-0-dev")):
        curves.append(of_trained(f"trained, {name}, dev", never, f"{name}-dev"))
    curves.append(of_trained("trained, costly-1, dev", "never-1-dev", "costly-1-dev"))
    most = [max((refused for lost, refused in one.points if lost <= AIM[0]), default=0.0) for one in curves]
    rows = [[one.name, f"{refused:.0f}"] for one, refused in zip(curves, most, strict=True)]
    print(as_table(["refused by", f"hidden refused % at most {AIM[0]:g} % of right answers lost"], rows))
    if args.plot:
        draw(curves, args.plot)


if __name__ == "__main__":
    main()
