"""Per-token values of an update: what is stored, of which episodes, and that training does not depend on it."""

import sqlite3
from contextlib import closing

import pytest
import torch
from msgspec import structs
from safetensors.torch import load_file

import tiny
from quaere.records.episodes import TokenTrace
from quaere.runs import Run
from quaere.training.batches import make_sample
from quaere.training.learner import Learner
from quaere.training.settings import LearnerSettings
from quaere.training.step import Step, trace_tokens
from viewing import make_episode, write_run
from village_runs import make_config, run_drzero


def weights_of(run):
    """The weights of the last checkpoint, by file and name."""
    last = sorted((run.path / "checkpoints").iterdir())[-1]
    files = sorted(path for path in last.rglob("*.safetensors"))
    return {(str(path.relative_to(last)), name): value for path in files for name, value in load_file(path).items()}


@pytest.fixture(scope="module")
def runs(village_paths, tmp_path_factory):
    """The same run without traces and with two an update."""
    folder = tmp_path_factory.mktemp("traced")
    once = {"solver.steps": 1}
    configs = (make_config(village_paths, **once), make_config(village_paths, traced_episodes=2, **once))
    return [run_drzero(folder / str(number), config)[0] for number, config in enumerate(configs)]


def test_what_is_traced_changes_no_weight_and_no_episode(runs):
    plain, traced = runs
    ours, theirs = weights_of(plain), weights_of(traced)
    assert ours.keys() == theirs.keys() and len(ours) > 2
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    for name in ("reward/mean", "loss/policy", "policy/entropy", "gradient/norm", "mismatch/max"):
        assert plain.metrics(name) == traced.metrics(name) != []
    for row in plain.index():
        mine, other = plain.episode(row.id), traced.episode(row.id)
        assert mine.segments == other.segments and mine.outcome == other.outcome


def test_as_many_as_were_asked_for_are_stored(runs):
    """None by default, and with traced_episodes=2 two of each step that has an update."""
    plain, traced = runs
    assert not any(plain.token_trace(row.id) for row in plain.index())
    for step in (1, 2, 3):
        moved = [metric for metric in traced.metrics("loss/policy") if metric.step == step]
        found = [row.id for row in traced.index(step=step) if traced.token_trace(row.id)]
        assert len(found) == (2 if moved else 0)


def test_values_are_those_of_the_tokens(runs):
    """One forward pass later the same weights say the same of the same tokens, up to the rounding of two engines."""
    traced = runs[1]
    stored = [(row, trace) for row in traced.index() if (trace := traced.token_trace(row.id))]
    assert stored
    for row, trace in stored:
        episode = traced.episode(row.id)
        assert trace.places == tuple(place for place, flag in enumerate(episode.loss_mask) if flag)
        sampled = [value for segment in episode.segments if segment.origin == "model" for value in segment.logprobs]
        assert trace.logprobs == pytest.approx(sampled, abs=0.02)
        assert trace.advantages == pytest.approx([row.metrics["advantage"]] * len(trace.places))
        assert all(value >= 0 for value in trace.entropies) and max(trace.entropies) > 0


def test_one_token_by_hand():
    """Log-prob and entropy of a step against the model's own logits."""
    learner = Learner(tiny.model(), LearnerSettings())
    episode = make_episode("e")
    sample = make_sample(episode, 0.5, [1.0] * 10 + [1.0, 2.0, 1.0, 1.0] + [1.0] * 2)
    step = Step(1, 0, "solver", 0, 7, learner, num_traced=1)
    trace_tokens(step, [sample])
    trace = step.traces["e"]
    assert trace.advantages == (0.5, 1.0, 0.5, 0.5)
    with torch.no_grad():
        logits = tiny.model().float()(torch.tensor([sample.token_ids])).logits[0]
    wanted = logits.log_softmax(dim=-1)[9:13]
    assert trace.logprobs == pytest.approx(
        wanted.gather(1, torch.tensor(sample.token_ids[10:14])[:, None])[:, 0].tolist()
    )
    assert trace.entropies == pytest.approx((-(wanted.exp() * wanted).sum(dim=-1)).tolist())


def test_which_episodes_are_traced_depends_on_the_step_alone():
    learner = Learner(tiny.model(), LearnerSettings())
    samples = [make_sample(make_episode(f"e{number}"), 1.0) for number in range(12)]
    silent = structs.replace(samples[0], loss_mask=(False,) * len(samples[0].loss_mask), episode_id="silent")

    def choose(seed, given):
        step = Step(1, 0, "solver", 0, seed, learner, num_traced=3)
        trace_tokens(step, given)
        return set(step.traces)

    assert choose(1, samples) == choose(1, [silent, *reversed(samples)]) and len(choose(1, samples)) == 3
    assert len({frozenset(choose(seed, samples)) for seed in range(6)}) > 1
    assert choose(1, [silent]) == set()


# --------------------------------------------------------------------------------------------------------------- store


def test_traces_go_with_the_steps_they_belong_to(tmp_path):
    trace = TokenTrace((10, 11), (0.5, -0.25), (-0.5, -2.0), (0.75, 1.5))
    with Run.open(write_run(tmp_path / "a"), write=True) as run:
        for step in (6, 7):
            run.add_episode(make_episode(f"e{step}"), step=step)
            run.add_traces(step, {f"e{step}": trace})
        assert run.token_trace("e7") == trace
        run.truncate_after(6)
        assert (run.token_trace("e6"), run.token_trace("e7")) == (trace, None)


def test_a_run_of_an_earlier_version_has_none(tmp_path):
    path = write_run(tmp_path / "a")
    with closing(sqlite3.connect(path / "run.db")) as database:
        for column in ("searches", "proof"):
            database.execute(f"ALTER TABLE candidates DROP COLUMN {column}")
        database.executescript("DROP TABLE token_traces; PRAGMA user_version = 6;")
    with Run.open(path) as run:
        assert run.token_trace("e1") is None
    with Run.open(path, write=True) as run:  # which migrates it
        run.add_traces(6, {"e1": TokenTrace((1,), (1.0,), (-1.0,), (1.0,))})
        assert run.token_trace("e1").places == (1,)
