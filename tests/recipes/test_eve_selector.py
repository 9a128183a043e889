"""The corpus selector in a run of EVE-Agent: what it chose, what it was told, what it remembers and what it learned."""

import math
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from msgspec import structs
from safetensors import safe_open

import quoting
from quaere.dialects.tool_call import QUESTION_TYPES, TYPE_NAMES
from quaere.recipes.selector import pulled_questions
from quaere.records import Candidate
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints
from quaere.search.index import open_index
from village_runs import Told, make_quoting, proposals, run_eve

pytest.importorskip("sklearn")

SELECTING = {
    "iterations": 3,
    "prompt_source": "selector",
    "selector.num_clusters": 4,
    "proposer.steps": 1,
    "generation.candidates": 12,
    "generation.batch": 12,
    "generation.attempts": 0,
    "solver.steps": 1,
    "solver.attempts": 2,
    "proposer.attempts": 2,
    "verifier.samples": 1,
    "checkpoints.keep": 20,
}


class Enough(Exception):
    """Nothing after this step is looked at."""


class Stopping(Told):
    """Ends a run after a step and its checkpoint."""

    def __init__(self, last_step):
        super().__init__()
        self.last_step = last_step

    def step(self, report):
        super().step(report)
        if report.step == self.last_step:
            raise Enough


def select(paths, folder, *assignments, last_step=None):
    """The run, as far as this step or to its end."""
    with suppress(Enough):
        run_eve(folder / "run", make_quoting(paths, *assignments, **SELECTING), Stopping(last_step))[0].close()
    return Run.open(folder / "run")


@pytest.fixture(scope="module")
def selected(quoting_paths, tmp_path_factory):
    """Three iterations of one step each phase, with a checkpoint of every step."""
    return select(quoting_paths, tmp_path_factory.mktemp("selected"))


def state(run, step):
    """What the selector remembers in the checkpoint of a step."""
    found = next(found for found in find_checkpoints(run.path / "checkpoints") if found.step == step)
    with safe_open(found.path / "selector.safetensors", framework="np") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no mapping)


def test_its_choices_are_stored_and_asked_for(selected):
    candidates = selected.candidates()
    assert len(candidates) == 36
    assert len({item.cluster for item in candidates}) > 1 and {item.cluster for item in candidates} <= set(range(4))
    assert len({item.question_type for item in candidates}) > 1
    for item in candidates:
        assert selected.episode(item.episode_id).task.question_type == item.question_type
    for phase in ("proposer", "generation"):
        for episode, _ in proposals(selected, phase):
            prompt = quoting.tokenizer().decode(episode.segments[0].token_ids)
            assert [kind for kind, line in QUESTION_TYPES.items() if line in prompt] == [episode.task.question_type]
    assert all(0 <= paid["selector/cluster"] < 4 for _, paid in proposals(selected))


def test_the_clusters_it_names_are_those_of_its_documents(selected, quoting_paths):
    index = open_index(quoting_paths[0])
    numbers = {index.passage(number).doc_id: number for number in range(len(index))}
    held_out = {item.document_id for item in selected.candidates()}
    assert held_out.isdisjoint(episode.task.document.doc_id for episode, _ in proposals(selected))
    labels = state(selected, 1)["clustering.labels"]
    for item in selected.candidates():
        # A cluster of which nothing is held out is answered by any document that is.
        has_some = any(labels[numbers[name]] == item.cluster for name in held_out)
        assert labels[numbers[item.document_id]] == item.cluster or not has_some


def test_it_counts_what_it_gave_away(selected):
    steps = [found.step for found in find_checkpoints(selected.path / "checkpoints")]
    drawn = [state(selected, step)["uses"].sum() for step in steps]
    # Eight documents for a proposer step, six (two questions each) for the generation, none for the solver: it has no
    # last step if nothing new was asked by then.
    assert np.diff(drawn).tolist() == ([8, 6, 0] * 3)[: len(steps) - 1] and len(steps) >= 9


def expected_types(run, score):
    """The type bandit after the first iteration: five fresh arms, paid for rarity and for what came of them.

    Questions that were dropped count for nothing.
    """
    samples = run.candidates(iteration=0, kept=True)
    copies = Counter(item.question for item in samples)
    pulls, rewards = np.ones(5, int), np.zeros(5)
    for item in samples:
        quality = (1 if 20 <= len(item.question) <= 220 else 0.65) / math.sqrt(copies[item.question])
        quality *= 1 if 1 <= len(item.answer) <= 80 else 0.55
        arm = TYPE_NAMES.index(item.question_type)
        pulls[arm] += 1
        rewards[arm] += -math.log(1 / 5 + 1e-8) + 0.5 * score * quality
    return pulls, rewards


def test_it_hears_of_kept_questions_alone(tmp_path):
    chosen = {"cluster": 2, "question_type": "temporal"}
    made = [Candidate("a", 1, 0, "a", "d", 1, "When was it built?", "1702", **chosen)]
    made += [structs.replace(made[0], id="b", reason="leaked answer"), structs.replace(made[0], id="c", cluster=-1)]
    made += [structs.replace(made[0], id="d", iteration=1, question="When did it fall?")]
    with Run.create(tmp_path / "run", "evolve") as run:
        run.add_candidates(made)
        assert pulled_questions(run, 0) == made[:1]
        assert [one.question for one in pulled_questions(run, 1)] == ["When did it fall?"]


def mean_rewards(run):
    return [run.metrics_at(step)["reward/mean"] for step in (1, 3)]  # the proposer's last step, and the solver's


def test_it_learns_between_iterations_and_only_there(selected):
    proposer, solver = mean_rewards(selected)
    pulls, rewards = expected_types(selected, min(1.0, (proposer + solver) / 2))
    for step in (1, 2, 3):
        assert state(selected, step)["types.pulls"].tolist() == [1] * 5
    for step in (4, 5, 6):
        after = state(selected, step)
        assert after["types.pulls"].tolist() == pulls.tolist()
        assert after["types.rewards"] == pytest.approx(rewards)
        assert after["clusters.pulls"].sum() - 4 == pulls.sum() - 5
    assert state(selected, 7)["types.pulls"].sum() > pulls.sum()


def test_a_rescaled_run_score(selected, quoting_paths, tmp_path):
    run = select(quoting_paths, tmp_path, "selector.run_score=rescale", last_step=4)
    proposer, solver = mean_rewards(run)
    assert [proposer, solver] == mean_rewards(selected)
    pulls, rewards = expected_types(run, ((proposer + 0.5) / 2.6 + solver / 1.3) / 2)
    assert state(run, 4)["types.pulls"].tolist() == pulls.tolist()
    assert state(run, 4)["types.rewards"] == pytest.approx(rewards)
    assert not np.allclose(rewards, state(selected, 4)["types.rewards"])


def test_the_mean_of_an_arm_before(selected, quoting_paths, tmp_path):
    run = select(quoting_paths, tmp_path, "selector.previous_mean=arm mean", last_step=7)
    # Fresh arms have no past; from the second time on they are held to what they were paid, which is more.
    assert state(run, 4)["types.rewards"].tolist() == state(selected, 4)["types.rewards"].tolist()
    before, after = state(selected, 7), state(run, 7)
    assert after["types.pulls"].tolist() == before["types.pulls"].tolist()
    assert after["types.rewards"].sum() < before["types.rewards"].sum()


def test_more_topics_as_it_goes_on(selected, quoting_paths, tmp_path):
    run = select(quoting_paths, tmp_path, "selector.growth=2", last_step=4)
    sizes = [len(state(run, step)["clusters.pulls"]) for step in (3, 4)]
    assert sizes == [4, 6]
    assert len(state(selected, 4)["clusters.pulls"]) == 4


def test_by_yield_it_counts_every_draw_after_every_step(quoting_paths, tmp_path):
    run = select(quoting_paths, tmp_path, "selector.learns=yield", "generation.attempts=2", last_step=4)
    with run:
        pulls = [state(run, step)["types.pulls"].sum() - 5 for step in range(4)]
        # Eight proposals, then twelve candidates; nothing while the solver learns. Kept or not, each counts.
        assert pulls == [0, 8, 20, 20]
        made = run.candidates(iteration=0)
        before, after = state(run, 1), state(run, 2)
        for number, name in enumerate(TYPE_NAMES):
            drawn = [item for item in made if item.question_type == name]
            assert after["types.pulls"][number] - before["types.pulls"][number] == len(drawn)
            earned = after["types.rewards"][number] - before["types.rewards"][number]
            assert earned == sum(item.kept for item in drawn)
        paid = [values for _, values in proposals(run)][:8]  # those of the first step
        useful = [0 < one["attempts/right"] < one["attempts/num"] for one in paid]
        assert before["types.rewards"].sum() == sum(useful)


def test_without_evidence_it_learns_too(quoting_paths, tmp_path):
    """Clusters and types of its questions are stored, whether or not evidence is asked for."""
    plain = ["evidence.cite=false", *(f"evidence.{name}_weight=0" for name in ("value", "brevity", "span"))]
    run = select(quoting_paths, tmp_path, *plain, last_step=4)
    with run:
        assert all(item.cluster >= 0 and item.question_type for item in run.candidates(iteration=0))
        num_kept = len(run.candidates(iteration=0, kept=True))
        assert state(run, 4)["types.pulls"].sum() - 5 == num_kept
