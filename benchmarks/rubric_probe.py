"""Do reports depend on the rubric they are written under? The weights are frozen: nothing is learned here.

    quaere warmup score --model M --style brief --out new
    quaere warmup score --model M --style brief --ignore-rubrics --out old
    quaere questions --index I --num 16 --out open.jsonl
    python benchmarks/rubric_probe.py new old --index I --questions open.jsonl --out probe

Every question is written about under ten rubrics (factuality alone, and with each other dimension), eight times each.
For the agreement C of the conclusions and for each feature of the reports, the table has the share of the variance
within questions that the rubric explains, with a 95 % bootstrap interval over questions; the share that it explains
when rubrics are dealt to the reports of a question at random (the control); and the share of random deals that explain
as much (p). An evaluator can learn to choose rubrics only if C depends on them: 10 % or more is worth a run.

Reports are appended to OUT/NAME.jsonl as they are finished; what is there is not written again.
"""

# ruff: noqa: N803 (capitals are shapes: Q questions, R rubrics, K attempts)
from __future__ import annotations

import argparse
import asyncio
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from quaere.api.report import choose_writer
from quaere.chat.dimensions import POOL
from quaere.dialects.notes import find_notes
from quaere.dialects.report.report_writer import bind_report
from quaere.errors import BadInput
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Question, Report, ReportTask, Rubric, Weight
from quaere.rewards.reports import consistency_score
from quaere.rollout.episode import Job, run_many
from quaere.rollout.policy import derive_seed, open_policy
from quaere.rollout.question_files import read_questions
from quaere.search.searcher import open_searcher
from quaere.warmup.rubric_drafts import JOINING

WEIGHT = 0.3
NUM_DEALS, NUM_RESAMPLES = 500, 1000
AGREEMENT = "C"

_MARK = re.compile(r"\s*\[[0-9, ]+\]")
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_ADMITS = re.compile(r"\b(?:not|no|nothing|unknown|never)\b", re.IGNORECASE)


# ------------------------------------------------------------------------------------------------------------- features


def _count_words(text: str) -> int:
    return len(_MARK.sub("", text).split())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _count_turns(report: Report) -> float:
    """The share of cited sentences that cite other passages than the one before: by turns or one after another."""
    cited = [one.citations for one in report.statements if one.citations]
    return _mean([float(one != two) for one, two in itertools.pairwise(cited)])


FEATURES: dict[str, Callable[[Report], float]] = {
    "statements": lambda report: len(report.statements),
    "words per statement": lambda report: _mean([_count_words(one.text) for one in report.statements]),
    "marks": lambda report: len(_MARK.findall(report.text)) / max(1, len(report.statements)),
    "statements without a mark": lambda report: _mean([float(not one.citations) for one in report.statements]),
    "figures": lambda report: len(_NUMBER.findall(_MARK.sub("", report.text))),
    "passages cited": lambda report: len(report.sources),
    "gaps admitted": lambda report: sum(
        not one.citations and bool(_ADMITS.search(one.text)) for one in report.statements
    ),
    "joining words": lambda report: sum(one.text.startswith(JOINING) for one in report.statements),
    "words of the conclusion": lambda report: _count_words(report.conclusion),
    "turns": _count_turns,
}
"""What reports are like, by rules; each dimension that the warm-up teaches to follow has one or two."""


class Row(Struct, frozen=True):
    """One attempt: the numbers of its question and rubric, the report's conclusion and features; None if unfinished."""

    question: int
    rubric: int
    attempt: int
    text: str = ""
    conclusion: str = ""
    features: dict[str, float] | None = None


def measure_row(place: tuple[int, int, int], report: Report | None) -> Row:
    if report is None:
        return Row(*place)
    features = {name: float(measure(report)) for name, measure in FEATURES.items()}
    return Row(*place, report.text, report.conclusion, features)


# ------------------------------------------------------------------------------------------------------------- variance


def explained_share(values_QRK: NDArray[np.float64]) -> float:
    """The share of the variance within questions that the rubric explains; 0 if nothing varies. NaN is left out.

    Values are centred on their question's mean; the share is the sum of squares of the rubrics' means, each counted as
    often as it has values, over that of all values.

        explained_share([[[1, 1], [3, 3]]]) -> 1.0; explained_share([[[1, 3], [3, 1]]]) -> 0.0
    """
    known = np.isfinite(values_QRK)
    filled = np.where(known, values_QRK, 0.0)
    means = filled.sum(axis=(1, 2), keepdims=True) / np.maximum(known.sum(axis=(1, 2), keepdims=True), 1)
    centred = np.where(known, filled - means, 0.0)
    total = float((centred**2).sum())
    counts = known.sum(axis=(0, 2))
    between = float((centred.sum(axis=(0, 2)) ** 2 / np.maximum(counts, 1)).sum())
    return between / total if total > 1e-12 else 0.0


class Explained(Struct, frozen=True):
    """A share with its interval, the mean share of random deals, and the share of deals that explain as much."""

    share: float
    low: float
    high: float
    by_chance: float
    p: float


def explain_variance(values_QRK: NDArray[np.float64], seed: int = 0) -> Explained:
    """`explained_share` with a bootstrap over questions and a control that deals rubrics at random within questions."""
    draw = np.random.default_rng(seed)
    share = explained_share(values_QRK)
    num_questions = len(values_QRK)
    flat = values_QRK.reshape(num_questions, -1)
    deals = [explained_share(draw.permuted(flat, axis=1).reshape(values_QRK.shape)) for _ in range(NUM_DEALS)]
    picks = draw.integers(num_questions, size=(NUM_RESAMPLES, num_questions))
    low, high = np.quantile([explained_share(values_QRK[pick]) for pick in picks], [0.025, 0.975])
    as_much = sum(deal >= share for deal in deals)
    return Explained(share, float(low), float(high), float(np.mean(deals)), (1 + as_much) / (1 + NUM_DEALS))


def make_arrays(rows: Sequence[Row], num_rubrics: int, num_attempts: int) -> dict[str, NDArray[np.float64]]:
    """Every feature by question, rubric and attempt, and C by question and rubric; NaN where there is no report."""
    questions = sorted({row.question for row in rows})
    shape = len(questions), num_rubrics, num_attempts
    found = {name: np.full(shape, np.nan) for name in FEATURES}
    conclusions = [[[""] * num_attempts for _ in range(num_rubrics)] for _ in questions]
    for row in rows:
        at = questions.index(row.question)
        conclusions[at][row.rubric][row.attempt] = row.conclusion
        for name, value in (row.features or {}).items():
            found[name][at, row.rubric, row.attempt] = value
    scores = [[[consistency_score(told, "content")] for told in by_rubric] for by_rubric in conclusions]
    return {AGREEMENT: np.asarray(scores, dtype=np.float64), **found}


def make_table(rows: Sequence[Row], num_rubrics: int, num_attempts: int) -> list[str]:
    """One line for C and for each feature."""
    finished = sum(row.features is not None for row in rows)
    lines = [f"{finished} of {len(rows)} reports finished", ""]
    lines += ["| | mean | rubric explains | by chance | p |", "|---|---|---|---|---|"]
    for name, values in make_arrays(rows, num_rubrics, num_attempts).items():
        if not np.isfinite(values).any():
            continue
        one = explain_variance(values)
        interval = f"{one.share:.1%} [{one.low:.1%}, {one.high:.1%}]"
        lines.append(f"| {name} | {np.nanmean(values):.3g} | {interval} | {one.by_chance:.1%} | {one.p:.3f} |")
    return lines


# ------------------------------------------------------------------------------------------------------------- the runs


def make_rubrics() -> list[Rubric]:
    """Factuality alone, then with each other dimension of the pool."""
    first, *others = (item.name for item in POOL)
    return [Rubric(first), *(Rubric(first, (Weight(name, WEIGHT),)) for name in others)]


async def probe(model: str, args: argparse.Namespace, questions: Sequence[Question], rubrics: Sequence[Rubric]) -> None:
    """Write all reports of one model that are not in its file yet."""
    file = place_of(model, args)
    done = {(row.question, row.rubric, row.attempt) for row in read_rows(file)}
    writer, limits = choose_writer(find_notes(model), guided=False, limits={})
    jobs, places = [], {}
    for number, question in enumerate(questions):
        for which, rubric in enumerate(rubrics):
            for attempt in range(args.attempts):
                place = (number, which, attempt)
                name = "-".join(map(str, place))
                places[name] = place
                if place not in done:
                    seed = derive_seed(args.seed, "probe", name)
                    jobs.append(Job(writer, ReportTask(question, rubric, attempt), name, seed=seed))
    if not jobs:
        return
    file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in read_rows(file)))  # without a cut-off line
    policy = open_policy(model, device=args.device, max_rows=args.max_rows, report=print)
    searcher = open_searcher(args.index)
    with file.open("ab") as stream:

        def keep(episode: Episode) -> None:
            stream.write(msgspec.json.encode(measure_row(places[episode.id], bind_report(episode))) + b"\n")
            stream.flush()

        params = SamplingParams(temperature=1.0)
        async for _ in run_many(
            policy, jobs, searcher, limits, params=params, concurrency=args.max_rows, on_episode=keep
        ):
            pass
    await searcher.close()
    await policy.stop()


def place_of(model: str, args: argparse.Namespace) -> Path:
    return Path(args.out) / f"{Path(model).name}.jsonl"


def read_rows(file: Path) -> list[Row]:
    """The rows of a file; a last line that was cut off is left out."""
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [msgspec.json.decode(line, type=Row) for line in lines]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="models of `quaere warmup score`, each with a name of its own")
    parser.add_argument("--index", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--num-questions", type=int, default=16)
    parser.add_argument("--attempts", type=int, default=8)
    parser.add_argument("--max-rows", type=int, default=64)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True, help="folder for the reports")
    args = parser.parse_args(words)
    questions, rubrics = read_questions(args.questions)[: args.num_questions], make_rubrics()
    if len({Path(model).name for model in args.models}) < len(args.models):
        raise BadInput("two models have the same name, and would share a file")
    Path(args.out).mkdir(parents=True, exist_ok=True)
    for model in args.models:
        asyncio.run(probe(model, args, questions, rubrics))
        rows = [row for row in read_rows(place_of(model, args)) if row.question < len(questions)]
        print("\n".join([f"\n## {model}", *make_table(rows, len(rubrics), args.attempts)]), flush=True)


if __name__ == "__main__":
    main()
