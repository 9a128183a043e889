"""One table of every method that was measured on the same questions: without training, and trained.

    python benchmarks/methods_table.py
    pip install matplotlib; python benchmarks/methods_table.py --plot docs/figures/methods.svg

It reads the committed items files (results/). Exact match is in percent: *dev* over the 1,000 questions about Wikipedia
that every method was asked, *docs* over the 250 about documentation. Brackets are 95 % intervals: over questions for
one seed, over questions and seeds for several. Searches are per question of dev, or of docs where there is no dev.
Minutes are those of the steps of reinforcement on one H200, averaged over seeds; the form before it is not counted.

Below it are published figures, which are of other models, questions and indexes: they do not compare with ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from curves import StoredMetrics
from msgspec import Struct
from results_table import HEX, Key, Seed, mean_over, read_seed, say_score, seed_values
from tables import as_table

from quaere.evaluation.intervals import seeded_interval

RESULTS = Path(__file__).parent / "results"


class Method(Struct, frozen=True):
    """A row of the table: its items files on either set of questions, and the metrics of its runs; {} are its seeds.

    Method("reinforced", dev="same-start/direct-{}", dev_seeds="012", minutes="same-start/direct-{}")
    """

    name: str
    dev: str = ""
    docs: str = ""
    dev_seeds: str = "0"
    docs_seeds: str = "0"
    minutes: str = ""
    labels: str = "no"


def _own(name: str, arm: str) -> Method:
    """An arm of own_documents.sh: one seed was asked about Wikipedia, all three about the manuals."""
    minutes = "" if arm == "form" else f"own-documents/{arm}-{{}}"
    files = (f"own-documents/{arm}-dev-report-{{}}", f"own-documents/{arm}-docs-exam-{{}}")
    return Method(name, *files, docs_seeds="012", minutes=minutes)


def _trained(name: str, files: str, seeds: str, labels: str = "no") -> Method:
    """An arm that was asked about Wikipedia alone."""
    return Method(name, files, dev_seeds=seeds, minutes=files, labels=labels)


METHODS = (
    *(Method(name, f"untrained/{name}-dev", f"untrained/{name}-docs") for name in ("direct", "cot", "ircot")),
    Method("search-r1, prompted", "untrained/search-r1-dev", "untrained/search-r1-docs"),
    Method("rag", "untrained/rag-dev", "untrained/rag-docs"),
    Method("form only", "same-start/form-{}", dev_seeds="01"),
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
    _trained("reinforced on labelled questions, 32 steps", "same-start/labelled-{}", "0", "5,323"),
    _trained("reinforced on labelled questions, 78 steps", "labelled/labelled-{}", "1", "5,323"),
)

# Mean exact match over seven test sets, Qwen2.5-3B-Instruct, as Dr. Zero's paper prints it (Tables 1 and 2).
PUBLISHED = {
    "direct": 13.4, "SFT": 17.6, "IRCoT": 18.1, "R1": 22.4, "SQLM*": 23.3, "Search-o1": 25.5, "R-Zero*": 25.6,
    "RAG": 27.0, "Dr. Zero": 32.6, "Search-R1": 32.7,
}  # fmt: skip


def read_seeds(pattern: str, seeds: str, keys: Sequence[Key] = ()) -> list[Seed]:
    """The results of every seed's file; with `keys`, of these questions alone."""
    paths = dict.fromkeys(RESULTS / f"{pattern.format(seed)}.items.jsonl.gz" for seed in seeds)
    found = [read_seed(path, frozenset(HEX)) for path in paths]
    return [{key: seed[key] for key in keys} for seed in found] if keys else found


def shared_questions(which: str) -> list[Key]:
    """The questions with an answer that every method with such a file was asked."""
    files = [
        seed
        for method in METHODS
        if (pattern := getattr(method, which))
        for seed in read_seeds(pattern, getattr(method, f"{which}_seeds"))
    ]
    return [key for key, item in files[0].items() if item.answerable and all(key in seed for seed in files)]


def count_minutes(method: Method) -> float | None:
    """Minutes of the steps of a method's runs, on average over seeds; None if they are not recorded."""
    if not method.minutes:
        return None
    seeds = max(method.dev_seeds, method.docs_seeds, key=len)
    runs = {RESULTS / f"{method.minutes.format(seed)}.metrics.json.gz" for seed in seeds}
    return fmean(sum(one.value for one in StoredMetrics(run).metrics("step/seconds")) for run in runs) / 60


def make_row(method: Method, questions: dict[str, list[Key]]) -> list[str]:
    """The cells of a method."""
    scores, searches = [], ""
    for which, keys in questions.items():
        pattern, names = getattr(method, which), getattr(method, f"{which}_seeds")
        seeds = read_seeds(pattern, names, keys) if pattern else []
        scores.append(say_score(seeds, keys, "exact_match") + _count_seeds(seeds) if seeds else "")
        if seeds and not searches:
            searches = f"{mean_over(seeds, keys, lambda item: item.num_searches):.2f}"
    minutes = count_minutes(method)
    return [method.name, *scores, searches, "" if minutes is None else f"{minutes:.1f}", method.labels]


def _count_seeds(seeds: Sequence[Seed]) -> str:
    return f", {len(seeds)} seeds" if len(seeds) > 1 else ""


def draw(path: Path, keys: Sequence[Key]) -> None:
    """Exact match on dev against minutes, with intervals; methods without training are at 0."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaere"  # the same picture from the same files
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 3.6))
    axis.set_prop_cycle(color=pyplot.get_cmap("tab20").colors[::2] + pyplot.get_cmap("tab20").colors[1::2])
    for method in METHODS:
        minutes = count_minutes(method)
        if not method.dev or (minutes is None and not method.dev.startswith("untrained/")):
            continue  # how long the form took is not recorded
        found = seeded_interval(seed_values(read_seeds(method.dev, method.dev_seeds, keys), keys, "exact_match"))
        low, high = 100 * (found.mean - found.low), 100 * (found.high - found.mean)
        axis.errorbar(
            minutes or 0,
            100 * found.mean,
            [[low], [high]],
            fmt="s" if minutes is None else "o",
            capsize=3,
            label=method.name,
        )
    axis.set_xlabel("minutes of reinforcement on one H200")
    axis.set_ylabel("exact match, %")
    axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="write EM against minutes as an SVG")
    args = parser.parse_args(argv)
    questions = {which: shared_questions(which) for which in ("dev", "docs")}
    heads = [f"EM %, {which} ({len(keys):,})" for which, keys in questions.items()]
    rows = [make_row(method, questions) for method in METHODS]
    print(as_table(("method", *heads, "searches", "minutes", "labels"), rows))
    print("\nPublished, of other models, questions and indexes (Dr. Zero, Qwen2.5-3B-Instruct, mean of seven sets):\n")
    print(as_table(("method", "EM %"), [(name, f"{score:.1f}") for name, score in PUBLISHED.items()]))
    if args.plot:
        draw(args.plot, questions["dev"])


if __name__ == "__main__":
    main()
