"""What recipes of self-play share, by hand: steps, documents, dialects, new questions, the proposer's metrics."""

from types import SimpleNamespace

import pytest
from msgspec import structs

from quaere.objectives.policy_gradient import grpo
from quaere.records import Candidate, Episode, ProposeTask
from quaere.rewards.proposer import ProposerReward
from quaere.training import self_play
from quaere.training.proposals import ProposerConfig, measure_proposer, read_proposal
from quaere.training.self_play import (
    GenerationConfig,
    SelfPlayConfig,
    _check_curriculum,
    count_batches,
    count_steps,
    needed_dialects,
    place_tasks,
)
from quaere.training.settings import HealthSettings
from quaere.training.solver_phase import SolverConfig
from quaere.training.step import Step


@pytest.mark.parametrize(
    ("candidates", "questions", "expected"),
    [(1, 1, 1), (8, 1, 1), (9, 1, 2), (0, 1, 3), (9, 2, 2), (8, 3, 2)],  # 0: as many as the proposer has prompts, 20
)
def test_batches_of_eight_questions_hold_all_candidates(candidates, questions, expected):
    generation = GenerationConfig(candidates=candidates, batch=8, questions=questions)
    proposer = ProposerConfig(steps=4, batch=5)
    assert count_batches(generation, proposer) == expected
    config = SelfPlayConfig(iterations=2, proposer=proposer, generation=generation, solver=SolverConfig(steps=7))
    assert count_steps(config) == 2 * (4 + expected + 7)


def test_iterations_that_carry_on_take_documents_in_turn():
    """The first is as without: the option can be switched on for a run's later iterations."""
    carried, plain = (SelfPlayConfig(proposer=ProposerConfig(steps=2, batch=4, carry_on=on)) for on in (True, False))
    assert place_tasks(carried, 0, range(3)) == place_tasks(plain, 0, range(3))
    seed, numbers = place_tasks(carried, 2, range(3))
    assert numbers == [16, 17, 18] and seed == place_tasks(carried, 0, [0])[0]
    assert place_tasks(plain, 2, range(3))[1] == [0, 1, 2]


@pytest.mark.parametrize(
    ("steps", "candidates", "dialect", "expected"),
    [
        (50, 0, "evalact", ["eve", "evalact"]),
        (0, 64, "evalact", ["eve", "evalact"]),  # a proposer that does not learn plays all the same
        (0, 0, "evalact", ["evalact"]),  # all questions are given
        (0, 0, "tool-call", ["eve"]),
        (50, 64, "tool-call", ["eve"]),
    ],
)
def test_a_warm_start_needs_the_dialects_that_are_played(steps, candidates, dialect, expected):
    config = SelfPlayConfig(
        proposer=ProposerConfig(steps=steps),
        generation=GenerationConfig(candidates=candidates),
        solver=SolverConfig(dialect=dialect),
    )
    assert needed_dialects(config, "eve") == expected


def candidate(question, iteration, reason=""):
    return Candidate(question, 1, iteration, question, "", 1, question, "Venn", reason=reason)


@pytest.mark.parametrize(("least", "num_alarms"), [(2, 0), (3, 1)])
def test_new_questions_are_counted_among_those_of_the_iteration(least, num_alarms):
    """Of four that the second iteration kept, stored and new, two were asked in the first, which kept three."""
    stored = [candidate(text, 0) for text in ("Who?", "When?", "Why?")]
    stored += [candidate(text, 1) for text in ("Who?", "Where?")]
    step = Step(9, 1, "generation", 1, 0, None)
    step.candidates = [candidate("When?", 1), candidate("How?", 1), candidate("What?", 1, "never solved")]
    training = SimpleNamespace(store=SimpleNamespace(candidates=lambda kept: stored))
    config = SelfPlayConfig(health=HealthSettings(min_new_questions=least))
    _check_curriculum(config, training, step)
    assert step.metrics == {"curriculum/new": 2.0, "curriculum/overlap": 0.5, "curriculum/repeats": 0.5}
    assert len(step.alarms) == num_alarms


def test_a_first_iteration_overlaps_with_nothing():
    step = Step(1, 0, "generation", 0, 0, None)
    step.candidates = [candidate("Who?", 0)]
    _check_curriculum(SelfPlayConfig(), SimpleNamespace(store=SimpleNamespace(candidates=lambda kept: [])), step)
    assert step.metrics == {"curriculum/new": 1.0, "curriculum/repeats": 0.0} and step.alarms == []


def test_the_metrics_of_a_proposers_step():
    """Two questions of one group, paid 1 and 0, of which the first was tried: advantages of 0.707 and -0.707."""
    step, paid = Step(1, 0, "proposer", 0, 0, None), []
    for number, (num_right, num_attempts) in enumerate([(1, 2), (0, 0)]):
        episode = Episode(f"p{number}", ProposeTask(f"p{number}", None, 1), "p", "m", 0, (), (), None, "turn_limit")
        reward = ProposerReward(0.0, 1.0 - number, 1.0 - number)
        tried = {"num_right": num_right, "num_attempts": num_attempts}
        paid.append(structs.replace(read_proposal(episode), reward=reward, **tried))
    step.metrics |= {"proposer/episodes": 2.0, "solver/episodes": 2.0}
    measure_proposer(step, paid, grpo([1.0, 0.0], [0, 0], delta=0.0), num_documents=2, num_attempts=2)
    found = step.metrics
    assert found["advantage/max_abs"] == pytest.approx(0.5**0.5)
    assert (found["advantage/zero_variance"], found["advantage/nonzero"]) == (0.0, 1.0)
    assert found["reward/mean"] == 0.5 and found["proposer/valid"] == 0.0
    assert (found["passes/0"], found["passes/1"], found["passes/2"]) == (0.0, 1.0, 0.0)
    assert {name: value for name, value in found.items() if name.startswith("cost/")} == {
        "cost/documents": 2.0,
        "cost/proposer_episodes": 2.0,
        "cost/solver_episodes": 2.0,
        "cost/valid_questions": 1.0,
        "cost/grpo_episodes": 40.0,
    }
    assert [one["advantage"] for one in step.measured] == pytest.approx([0.5**0.5, -(0.5**0.5)])


@pytest.mark.parametrize(("questions", "attempts", "num"), [(1, 5, 6), (4, 4, 20)])  # HRPO's and GRPO's, by the paper
def test_the_plan_counts_the_episodes_of_a_step(monkeypatch, questions, attempts, num):
    monkeypatch.setattr(self_play, "plan_memory", lambda config, phases: [])
    proposer = ProposerConfig(batch=256, questions=questions, attempts=attempts)
    plan = dict(self_play.plan_self_play(SelfPlayConfig(proposer=proposer)))
    num_tokens = 256 * questions * (4096 + attempts * 3072)
    played = f"a step plays {256 * questions} + {256 * questions * attempts} episodes, {num_tokens:,} tokens at most"
    assert plan["proposer phase"].endswith(played)
    assert plan["episodes a document"].startswith(f"{num}, where")
