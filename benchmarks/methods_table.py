"""One table of every method that was measured: without training, and trained.

    python benchmarks/methods_table.py
    python benchmarks/methods_table.py --digits 0-f                # every question, also those to choose by
    pip install matplotlib; python benchmarks/methods_table.py --plot docs/figures/methods.svg

It reads the committed items files (results/). Exact match is in percent, over the questions with an answer whose
sha256(id) begins with a digit of `--digits`: *dev* about Wikipedia, *docs* about documentation. A row that was asked
fewer of them says how many. Brackets are 95 % intervals: over questions for one seed, over questions and seeds for
several. Searches are per question of dev, or of docs where there is no dev. Minutes are those of the steps of
reinforcement on one H200, averaged over seeds; the form before it is not counted. *Terms* are what the index searched
by, as its version has changed: whole words, stems, or ? where that was not recorded.

Methods without training were asked all questions by `quaere eval untrained.yaml --max-rows 128`;
results/untrained/table.json is that suite's table, with settings, hashes and seconds.

Below it are published figures, which are of other models, questions and indexes: they do not compare with ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from curves import StoredMetrics
from msgspec import Struct
from results_table import Seed, mean_over, parse_digits, read_seed, say_score, seed_values
from tables import as_table

from quaere.errors import BadInput
from quaere.evaluation.intervals import seeded_interval

RESULTS = Path(__file__).parent / "results"


class Method(Struct, frozen=True):
    """A row of the table: its items files on either set of questions, and the metrics of its runs; {} are its seeds.

    `minutes` names the runs of a seed that came one after another, with a space between.

    Method("reinforced", dev="same-start/direct-{}", dev_seeds="012", minutes="same-start/direct-{}")
    """

    name: str
    dev: str = ""
    docs: str = ""
    dev_seeds: str = "0"
    docs_seeds: str = "0"
    minutes: str = ""
    labels: str = "no"
    terms: str = "stems"


def _untrained(name: str, dialect: str = "") -> Method:
    return Method(name, f"untrained/{dialect or name}-dev", f"untrained/{dialect or name}-docs")


def _own(name: str, arm: str) -> Method:
    """An arm of own_documents.sh: one seed was asked about Wikipedia, all three about the manuals."""
    minutes = "" if arm == "form" else f"own-documents/{arm}-{{}}"
    files = (f"own-documents/{arm}-dev-report-{{}}", f"own-documents/{arm}-docs-exam-{{}}")
    return Method(name, *files, docs_seeds="012", minutes=minutes, terms="?")


def _trained(name: str, files: str, seeds: str, labels: str = "no", after: str = "") -> Method:
    """An arm that was asked about Wikipedia alone; it may go on from the runs of another."""
    return Method(name, files, dev_seeds=seeds, minutes=f"{after} {files}", labels=labels, terms="words")


METHODS = (
    *map(_untrained, ("direct", "cot", "ircot", "search-o1")),
    _untrained("search-r1, prompted", "search-r1"),
    _untrained("autorefine, prompted", "autorefine"),
    _untrained("evalrar, prompted", "evalrar"),
    _untrained("evalact, prompted", "evalact"),
    _untrained("drzero, prompted", "drzero"),
    _untrained("eve, prompted", "eve"),
    _untrained("rag"),
    Method("form only", "same-start/form-{}", dev_seeds="01", terms="words"),
    _own("form only, of the manuals' runs", "form"),
    _trained("reinforced on written Wikipedia questions", "same-start/direct-{}", "012"),
    Method(
        "the same, 2,115 questions",
        "abstention/never-{}-dev",
        "abstention/never-{}-docs",
        dev_seeds="01",
        docs_seeds="01",
        minutes="abstention/never-{}",
    ),
    _own("the same, 2,359 questions", "dev"),
    _own("reinforced on written questions about the manuals", "docs"),
    Method(
        "the same, 927 clearer questions",
        docs="own-documents/latest-docs-exam-{}",
        docs_seeds="012",
        minutes="own-documents/latest-{}",
        terms="?",
    ),
    Method("`quaere learn` on the manuals", docs="learn/exam-after", minutes="learn/learn"),
    _trained("quotations rewarded (EVE)", "evidence/eve-{}", "123"),
    _trained("quotations rewarded only if verbatim", "evidence/strict-{}", "3"),
    _trained("reinforced, a second iteration", "evidence/second-{}", "3", after="evidence/direct-{}"),
    _trained("EVE, a second iteration", "evidence/second-eve-{}", "3", after="evidence/eve-{}"),
    _trained("reinforced on labelled questions, 32 steps", "same-start/labelled-{}", "0", "5,323"),
    _trained("reinforced on labelled questions, 78 steps", "labelled/labelled-{}", "1", "5,323"),
)

# Mean exact match over seven test sets, Qwen2.5-3B-Instruct, as Dr. Zero's paper prints it (Tables 1 and 2).
PUBLISHED = {
    "direct": 13.4, "SFT": 17.6, "IRCoT": 18.1, "R1": 22.4, "SQLM*": 23.3, "Search-o1": 25.5, "R-Zero*": 25.6,
    "RAG": 27.0, "Dr. Zero": 32.6, "Search-R1": 32.7,
}  # fmt: skip


def read_seeds(method: Method, which: str, digits: frozenset[str]) -> list[Seed]:
    """The results of every seed's file that has questions with an answer and such a digit, on `dev` or `docs`."""
    pattern, seeds = getattr(method, which), getattr(method, f"{which}_seeds")
    paths = dict.fromkeys(RESULTS / f"{pattern.format(seed)}.items.jsonl.gz" for seed in seeds if pattern)
    found = [read_seed(path, digits) for path in paths]
    return [some for seed in found if (some := {key: item for key, item in seed.items() if item.answerable})]


def count_minutes(method: Method) -> float | None:
    """Minutes of the steps of a method's runs, on average over seeds; None if they are not recorded."""
    if not method.minutes:
        return None
    seeds = max(method.dev_seeds, method.docs_seeds, key=len)
    runs = [RESULTS / f"{run.format(seed)}.metrics.json.gz" for seed in seeds for run in method.minutes.split()]
    return sum(one.value for run in runs for one in StoredMetrics(run).metrics("step/seconds")) / len(seeds) / 60


def make_row(method: Method, asked: Mapping[str, Sequence[Seed]], totals: Mapping[str, int]) -> list[str]:
    """The cells of a method, from its results on either set."""
    minutes = count_minutes(method)
    seeds = asked["dev"] or asked["docs"]
    return [
        method.name,
        *(_say_cell(some, totals[which]) for which, some in asked.items()),
        f"{mean_over(seeds, list(seeds[0]), lambda item: item.num_searches):.2f}" if seeds else "",
        "" if minutes is None else f"{minutes:.1f}",
        method.labels,
        method.terms,
    ]


def _say_cell(seeds: Sequence[Seed], total: int) -> str:
    if not seeds:
        return ""
    marks = [f"{len(seeds)} seeds"] * (len(seeds) > 1) + [f"of {len(seeds[0]):,}"] * (len(seeds[0]) < total)
    return ", ".join([say_score(seeds, list(seeds[0]), "exact_match"), *marks])


def draw(path: Path, asked: Mapping[str, Sequence[Seed]], total: int) -> None:
    """Exact match on dev against minutes, with intervals; methods without training are at 0."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaere"  # the same picture from the same files
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 3.6))
    axis.set_prop_cycle(color=pyplot.get_cmap("tab20").colors[::2] + pyplot.get_cmap("tab20").colors[1::2])
    for method in METHODS:
        minutes = count_minutes(method)
        seeds = asked[method.name]
        if not seeds or (minutes is None and not method.dev.startswith("untrained/")):
            continue  # how long the form took is not recorded
        found = seeded_interval(seed_values(seeds, list(seeds[0]), "exact_match"))
        low, high = 100 * (found.mean - found.low), 100 * (found.high - found.mean)
        axis.errorbar(
            minutes or 0,
            100 * found.mean,
            [[low], [high]],
            fmt="s" if minutes is None else "o",
            capsize=3,
            label=method.name + (f", of {len(seeds[0]):,}" if len(seeds[0]) < total else ""),
        )
    axis.set_xlabel("minutes of reinforcement on one H200")
    axis.set_ylabel("exact match, %")
    axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", default="5-f", metavar="5-f", help="first hex digits of sha256(id) to report on")
    parser.add_argument("--plot", type=Path, help="write EM against minutes as an SVG")
    args = parser.parse_args(argv)
    try:
        digits = parse_digits(args.digits)
    except BadInput as error:
        parser.error(str(error))
    asked = {one.name: {which: read_seeds(one, which, digits) for which in ("dev", "docs")} for one in METHODS}
    totals = {
        which: len({key for found in asked.values() for seed in found[which] for key in seed})
        for which in ("dev", "docs")
    }
    heads = [f"EM %, {which} ({total:,})" for which, total in totals.items()]
    rows = [make_row(method, asked[method.name], totals) for method in METHODS]
    print(as_table(("method", *heads, "searches", "minutes", "labels", "terms"), rows))
    print("\nPublished, of other models, questions and indexes (Dr. Zero, Qwen2.5-3B-Instruct, mean of seven sets):\n")
    print(as_table(("method", "EM %"), [(name, f"{score:.1f}") for name, score in PUBLISHED.items()]))
    if args.plot and not find_spec("matplotlib"):
        parser.error("--plot needs matplotlib: pip install matplotlib")
    if args.plot:
        draw(args.plot, {name: found["dev"] for name, found in asked.items()}, totals["dev"])


if __name__ == "__main__":
    main()
