"""Reports of several arms, each trained with one seed or more, on the same questions: what they write, differences.

    quaere report --questions held.jsonl --index INDEX --model A0 --runs reports        # once for each model
    python benchmarks/arms.py --facts held.jsonl --arm warm reports/warm --arm score reports/score-0 reports/score-1

Grades are those of `quaere grade --judge checks`, without a model. Of an arm with several seeds, the mean over them is
compared, question by question; what each seed differs by stands behind it. Intervals are over questions: what another
seed would have given is not in them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean

from msgspec import Struct
from tables import as_table

from quaere.dialects.report.report_writer import bind_report
from quaere.evaluation.intervals import bootstrap_interval, paired_difference, smallest_difference
from quaere.evaluation.reports.criteria import SCALE, general_criteria
from quaere.evaluation.reports.report_sources import FactBook, read_facts, read_report_run
from quaere.evaluation.reports.scores import (
    OVERALL,
    PROVEN,
    TOLD,
    VALID,
    add_knowing,
    open_judges,
    score_reports,
    values_of,
)
from quaere.records import ReportTask
from quaere.runs import Run


class Figure(Struct, frozen=True):
    """What is measured of a report: its words, how it is printed, and what two reports differ by at most, about."""

    said: str
    scale: float = 1.0
    form: str = ".2f"
    most: float = 1.0


FIGURES = {
    "finished": Figure("finished %", 100, ".1f"),
    "searches": Figure("searches", most=5),
    "words": Figure("words", form=".0f", most=200),
    "repeated": Figure("statements said before %", 100, ".1f"),
    "citations": Figure("citations", most=10),
    VALID: Figure("supported by `checks` %", 100, ".1f"),
    TOLD: Figure("facts told %", 100, ".1f"),
    PROVEN: Figure("facts proven %", 100, ".1f"),
    OVERALL: Figure("proxies, 0-10", most=SCALE),
}
Values = dict[str, dict[str, float]]  # by figure, then by question


async def measure(path: Path, facts: FactBook) -> Values:
    """Every figure of every report of a run."""
    given = read_report_run(path)
    judges = open_judges("checks")
    scores = await score_reports(judges, given.reports, [general_criteria()] * len(given.reports))
    scores, _ = add_knowing(scores, given.reports, facts)
    graded = {name: rows for name, rows in values_of(scores).items() if name in FIGURES}
    values: Values = {name: {} for name in FIGURES}
    for name, rows in graded.items():
        told = {report.question.text: row[0] for report, row in zip(given.reports, rows, strict=True)}
        values[name] = {asked: value for asked, value in told.items() if value is not None}
    with Run.open(path) as run:
        for episode in run.episodes():
            if not isinstance(episode.task, ReportTask):
                continue
            asked, written = episode.task.question.text, bind_report(episode)
            values["finished"][asked] = float(written is not None)
            values["searches"][asked] = float(episode.num_searches)
            values["words"][asked] = float(len(written.text.split())) if written else 0.0
            values["repeated"][asked] = written.repeated_share if written else 0.0
            values["citations"][asked] = float(len(written.citations)) if written else 0.0
    return values


def with_interval(values: Sequence[float], figure: Figure) -> str:
    found = bootstrap_interval([figure.scale * value for value in values])
    return f"{found.mean:{figure.form}} [{found.low:{figure.form}}, {found.high:{figure.form}}]"


def difference(ours: Sequence[Values], theirs: Sequence[Values], name: str) -> str:
    """The mean over seeds, its interval, the smallest difference that could have been seen, and each seed's own."""
    figure = FIGURES[name]
    asked = [text for text in ours[0][name] if all(text in one[name] for one in (*ours, *theirs))]
    mine, yours = ([fmean(one[name][text] for one in arm) for text in asked] for arm in (ours, theirs))
    found = paired_difference(mine, yours, most=figure.most)
    least = figure.most * smallest_difference([v / figure.most for v in mine], [v / figure.most for v in yours])
    scaled = [f"{figure.scale * value:+{figure.form}}" for value in (found.mean, found.low, found.high)]
    seeds = []
    for number, one in enumerate(ours):
        other = theirs[min(number, len(theirs) - 1)]
        seeds.append(figure.scale * fmean(one[name][text] - other[name][text] for text in asked))
    each = ", ".join(f"{value:+{figure.form}}" for value in seeds)
    return f"{scaled[0]} [{scaled[1]}, {scaled[2]}] ({figure.scale * least:{figure.form}}); {each}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", nargs="+", action="append", required=True, metavar=("NAME", "RUN"))
    parser.add_argument("--facts", type=Path, required=True, help="questions that `quaere questions --world` wrote")
    args = parser.parse_args()
    facts = read_facts(args.facts)
    arms = {name: [asyncio.run(measure(Path(path), facts)) for path in paths] for name, *paths in args.arm}
    told = [
        [name, str(seed), *(with_interval(list(run[key].values()), figure) for key, figure in FIGURES.items())]
        for name, runs in arms.items()
        for seed, run in enumerate(runs)
    ]
    print(as_table(["", "seed", *(figure.said for figure in FIGURES.values())], told))
    pairs = [(ours, theirs) for theirs, ours in combinations(arms, 2)]
    found = [
        [figure.said, *(difference(arms[ours], arms[theirs], key) for ours, theirs in pairs)]
        for key, figure in FIGURES.items()
    ]
    print("\n" + as_table(["", *(f"{ours} - {theirs}" for ours, theirs in pairs)], found))
    print("\n95 % intervals over questions; in parentheses the smallest difference they could have shown; each seed")


if __name__ == "__main__":
    main()
