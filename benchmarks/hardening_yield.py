"""How many checked questions a proposer hardens, and at which gate the others fall: a table, and examples of each.

    quaere evolve drzero --set proposer.task=harden --set proposer.steps=0 --set solver.steps=0 \\
        --set generation.given=checked.jsonl --set generation.candidates=1000 --model warm --index I --out run
    python benchmarks/hardening_yield.py run --examples 3 --kept hard.jsonl
    python benchmarks/hardening_yield.py run --at-least 0.1     # ends with exit code 1 if fewer pass every gate
    python benchmarks/hardening_yield.py trained --untrained run    # from how many kept questions on its training pays

Only the generation's questions count, whose facts are held out from the proposer's training. `--kept` writes those that
passed every gate and that the solver answers sometimes; `--passed` all that passed; `--lessons` these as chains with
the facts that they reword, for a warm-up that learns from what passed (rejection sampling). Intervals are Wilson's.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

from quaere.api.checked_questions import write_lines
from quaere.evaluation.intervals import wilson_interval
from quaere.recipes.hardening import GATES
from quaere.records import Candidate
from quaere.runs import Run
from quaere.training.given import encode_questions
from quaere.warmup.documents.checked_question import CheckedQuestion


def share(num: int, total: int) -> str:
    found = wilson_interval(num, total)
    return f"{num} ({found.mean:.1%} [{found.low:.1%}, {found.high:.1%}])"


def make_table(made: Sequence[Candidate]) -> list[str]:
    """One row per gate: how many pass it and all before it; then by the solver's attempts."""
    failed = [GATES.index(item.refusals[0]) if item.refusals else len(GATES) for item in made]
    lines = ["| gate | passed |", "|---|---|"]
    lines += [f"| {name} | {share(sum(at > place for at in failed), len(made))} |" for place, name in enumerate(GATES)]
    passed = [item for item in made if not item.refusals]
    for reason in ("never solved", "always solved", "duplicate"):
        lines.append(f"| of these {reason} | {sum(item.reason == reason for item in passed)} |")
    return [*lines, f"| **yield** | {share(sum(item.kept for item in made), len(made))} |"]


def show_examples(run: Run, made: Sequence[Candidate], num: int) -> list[str]:
    """Some rewordings that passed, and some of each gate that refused, each with the question it began with."""
    lines = []
    for name in ("", *GATES):
        some = [item for item in made if item.refusals == ((name,) if name else ())][:num]
        lines += [f"\n## {f'refused: {name}' if name else 'passed'}"] if some else []
        for item in some:
            given = run.episode(item.episode_id).task.given
            right = f", {item.num_right} of {item.num_attempts} right" if item.num_attempts else ""
            lines.append(
                f"- {given.text} -> {item.question or '(nothing)'} [{item.answer or given.answers[-1]}{right}]"
            )
    return lines


def make_lessons(run: Run, made: Sequence[Candidate]) -> list[CheckedQuestion]:
    """The rewordings that passed every gate, each followed by the question it began with, in the writer's form."""
    lessons = []
    for item in (item for item in made if not item.refusals):
        given = run.episode(item.episode_id).task.given
        new = CheckedQuestion(f"{item.id}>{given.id}", item.question, item.answers, "chain", 2, 2, 2, item.proof)
        lessons += [new, CheckedQuestion(given.id, given.text, given.answers, "single", 1, 1, 1, given.evidence)]
    return lessons


def find_lack(made: Sequence[Candidate], at_least: float) -> str:
    """Why too few rewordings pass every gate for the proposer to be trained, in one line; "" if enough do."""
    num = sum(not item.refusals for item in made)
    if num >= at_least * len(made):
        return ""
    return f"{num} of {len(made)} rewordings pass the gate, below {at_least:.0%}: too few to train on"


def find_break_even(num_trained: int, before: float, after: float) -> float:
    """The number of kept questions from which on training a proposer takes fewer proposals than it spares.

    A kept question takes 1 / yield proposals; infinite if the yield did not rise.

    find_break_even(600, before=0.1, after=0.4) == 80.0      # 800 proposals untrained; 600 and 200 trained
    """
    if after <= before:
        return float("inf")
    return num_trained / (1 / before - 1 / after) if before else 0.0


def say_break_even(run: Run, untrained: Path, after: float) -> str:
    """One line: what training took, and from how many kept questions on it pays."""
    num_trained = int(sum(one.value for one in run.metrics("cost/proposer_episodes")))
    with Run.open(untrained) as other:
        before = find_yield(list_made(other, None))
    least = find_break_even(num_trained, before, after)
    pays = f"pays from {least:,.0f} kept questions on" if math.isfinite(least) else "does not pay"
    return f"training took {num_trained:,} proposals, yield {before:.1%} -> {after:.1%}: it {pays}"


def list_made(run: Run, iteration: int | None) -> list[Candidate]:
    """The finished rewordings of an iteration, or of all."""
    every = run.candidates(iteration=iteration)
    return [item for item in every if not item.given and item.reason not in ("unfinished", "spoiled")]


def find_yield(made: Sequence[Candidate]) -> float:
    """Share of the rewordings that were kept."""
    return sum(item.kept for item in made) / max(1, len(made))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--iteration", type=int, help="one iteration (default: all)")
    parser.add_argument("--examples", type=int, default=3, help="of each gate")
    parser.add_argument("--kept", type=Path, help="file for the questions that the solver answers sometimes")
    parser.add_argument("--passed", type=Path, help="file for all questions that passed the gate")
    parser.add_argument("--lessons", type=Path, help="file for what passed the gate, as `split_chains.py` reads it")
    parser.add_argument("--untrained", type=Path, help="run of the untrained proposer, to say whether training pays")
    parser.add_argument("--at-least", type=float, default=0.0, help="share that must pass, for exit code 0")
    args = parser.parse_args()
    with Run.open(args.run) as run:
        made = list_made(run, args.iteration)
        if not made:
            raise SystemExit(f"{args.run} has no rewordings")
        print("\n".join([f"{len(made)} rewordings", *make_table(made), *show_examples(run, made, args.examples)]))
        means = {f"gate/{name}": [round(one.value, 4) for one in run.metrics(f"gate/{name}")] for name in GATES}
        print(json.dumps(means | {"gate/yield": [round(one.value, 4) for one in run.metrics("gate/yield")]}))
        if args.untrained:
            print(say_break_even(run, args.untrained, find_yield(made)))
        if args.lessons:
            write_lines(args.lessons, make_lessons(run, made))
    for path, some in ((args.kept, [item for item in made if item.kept]), (args.passed, made)):
        if path:
            path.write_bytes(encode_questions([item.to_question() for item in some if not item.refusals]))
    if lack := find_lack(made, args.at_least):
        raise SystemExit(lack)


if __name__ == "__main__":
    main()
