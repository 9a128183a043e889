"""EVE's solver learns to quote the sentence that proves its answer, because it is paid for that and nothing else is.

Every question accepts the builder and the payer of its bridge, so that exact match says nothing about the quotation;
the gold sentence is the builder's. The taught model quotes one or the other, or neither.
"""

import json

import pytest

from village import BRIDGES, builder, payer
from village_runs import make_quoting, run_eve

NUM_STEPS = 16


def write_questions(path):
    with path.open("w", encoding="utf-8") as file:
        for number, name in enumerate(BRIDGES):
            span, start = f"{builder(number)} built the bridge.", len(f"{name} is a bridge. ")
            evidence = [{"doc_id": name, "start": start, "end": start + len(span), "text": span}]
            asked, answers = f"Who built the {name} bridge?", [builder(number), payer(number)]
            file.write(json.dumps({"id": name, "question": asked, "answers": answers, "evidence": evidence}) + "\n")


def practise(paths, folder, weight, num_steps=NUM_STEPS):
    """A solver's phase on the questions; by step the share of gold quotations, and all rewards for quotations."""
    write_questions(folder / "given.jsonl")
    config = make_quoting(
        paths,
        **{
            "proposer.steps": 0,
            "generation.candidates": 0,
            "generation.attempts": 0,
            "generation.given": str(folder / "given.jsonl"),
            "evidence.guards": [],
            "evidence.span_weight": weight,
            "solver.steps": num_steps,
            "solver.batch": 16,
            "solver.attempts": 4,
            "solver.max_draws": 0,
            "validation.questions": 0,
            "checkpoints.every": 100,
        },
    )
    run, _ = run_eve(folder / "run", config)
    with run:
        gold = {item.id: item.evidence.text for item in run.candidates()}
        rows = run.index(phase="solver", protocol="eve-solver")
        quoted = {step: [] for step in sorted({row.step for row in rows})}
        for row in rows:
            quoted[row.step].append(getattr(run.episode(row.id).outcome, "span", "") == gold[row.task_id])
        return [sum(found) / len(found) for found in quoted.values()], [row.metrics["reward/span"] for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_learns_to_quote_what_is_gold(quoting_paths, tmp_path):
    """From a quarter to over half in 16 steps. The margins are those of six seeds, whose least are .52 and +.21."""
    shares, paid = practise(quoting_paths, tmp_path, 0.3)
    first, last = sum(shares[:4]) / 4, sum(shares[-4:]) / 4
    assert len(shares) == NUM_STEPS
    assert last > 0.4 and last > first + 0.12
    assert max(paid) == pytest.approx(0.3)


def test_unpaid_nothing_pulls_it_there(quoting_paths, tmp_path):
    """The same quotations, the gold ones among them, earn nothing."""
    shares, paid = practise(quoting_paths, tmp_path, 0.0, num_steps=1)
    assert shares[0] > 0 and set(paid) == {0.0}


def test_gold_quotations_and_no_others_are_paid_in_full(quoting_paths, tmp_path):
    """What 16 steps of this lead to is a slow test."""
    shares, paid = practise(quoting_paths, tmp_path, 0.3, num_steps=1)
    assert sum(reward == pytest.approx(0.3) for reward in paid) == round(shares[0] * len(paid)) > 0
