"""The baselines without a search, on the village: `sft` learns given answers, and `r1` what is paid for."""

import json

import pytest
import torch
from test_drzero_resume import digest
from transformers import AutoModelForCausalLM

import quaere
from practice_runs import make_practice, run_practice
from quaere.errors import BadInput, TrainingStopped
from quaere.recipes.registry import find_recipe
from quaere.runs import Run
from score_runs import Impatient, Stopped
from village import BRIDGES, builder, payer
from village_runs import Told

LIMITS = {"max_turns": 1, "turn_tokens": 24, "sequence_tokens": 256}
CHANGES = {"solver.limits": LIMITS, "validation.questions": 0, "solver.max_draws": 0, "solver.batch": 16}


def write_questions(path, *whos):
    """Every bridge's builder as each of these functions has it."""
    rows = [
        {"id": f"{place}-{number}", "question": f"Who built {name}?", "answers": [who(number)]}
        for place, who in enumerate(whos)
        for number, name in enumerate(BRIDGES)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def values(run, name):
    return [metric.value for metric in run.metrics(name)]


def naive_loss(model, episodes):
    """The mean cross-entropy of the model's tokens, one episode after another."""
    network, losses = AutoModelForCausalLM.from_pretrained(model).eval(), []
    for episode in episodes:
        ids = torch.tensor([episode.token_ids])
        with torch.no_grad():
            logprobs = network(ids).logits[0, :-1].log_softmax(-1)
        found = logprobs.gather(1, ids[0, 1:, None])[:, 0]
        losses += [-value for value, flag in zip(found.tolist(), episode.loss_mask[1:], strict=True) if flag]
    return sum(losses) / len(losses)


@pytest.fixture(scope="module")
def imitated(weighing_paths, tmp_path_factory):
    """A run of sft in which half of the labels of every question are right."""
    folder = tmp_path_factory.mktemp("imitated")
    index, model, _ = weighing_paths
    paths = index, model, write_questions(folder / "mixed.jsonl", builder, payer)
    more = {"solver.dialect": "cot", "solver.steps": 30, "solver.learner.learning_rate": 3e-3}
    run_practice(folder / "run", "sft", make_practice("sft", paths, **CHANGES, **more)).close()
    return index, quaere.export(folder / "run", folder / "exported"), folder


def test_sft_learns_the_given_answers(imitated, weighing_paths):
    _, model, folder = imitated
    with Run.open(folder / "run") as run:
        losses, episodes = values(run, "loss/policy"), list(run.episodes())
        assert not values(run, "mismatch/mean")  # nothing was sampled
    assert len(episodes) == 30 * 16 and {len(episode.turns) for episode in episodes} == {1}
    first = episodes[:16]
    assert all(episode.outcome.text in episode.task.question.answers for episode in first)
    assert losses[0] == pytest.approx(naive_loss(weighing_paths[1], first), rel=1e-4)
    # A bit is left of every question that has two answers, over the few tokens of each: six seeds ended below 0.5.
    assert losses[0] > 3 and naive_loss(model, first) < 0.8


def test_sft_chooses_its_best_weights_and_goes_on_as_if_never_stopped(imitated, tmp_path):
    index, model, _ = imitated
    paths = index, model, write_questions(tmp_path / "all.jsonl", builder, payer)
    more = {"validation.questions": 8, "validation.share": 0.5, "validation.every": 1, "solver.steps": 3}
    more |= {"solver.learner.learning_rate": 1.0, "solver.dialect": "cot"}  # it forgets what it knew
    config, told = make_practice("sft", paths, **{**CHANGES, **more, "solver.batch": 4}), Told()
    with run_practice(tmp_path / "straight", "sft", config, told) as run:
        held = {row.task_id for row in run.index(phase="validation")}
        assert len(held) == 8 and not held & {row.task_id for row in run.index(phase="solver")}
        assert len(values(run, "validation_start/exact_match")) == 1 and len(values(run, "validation/exact_match")) == 3
    assert told.notes[-1].startswith("the solver's best weights by validation are those of step 0")
    with pytest.raises(Stopped):
        run_practice(tmp_path / "stopped", "sft", config, Impatient(2))
    run_practice(tmp_path / "stopped", "sft", config).close()
    assert digest(tmp_path / "stopped") == digest(tmp_path / "straight")


def test_sft_writes_one_episode_of_each_question(weighing_paths):
    recipe, config = find_recipe("sft"), make_practice("sft", weighing_paths)
    assert config.solver.attempts > 1
    assert "4 questions; a step plays 4 episodes" in dict(recipe.plan(config))["solver phase"]


def test_answers_of_which_none_fits_are_one_line(weighing_paths, tmp_path):
    changes = {**CHANGES, "solver.limits": {**LIMITS, "turn_tokens": 1}, "solver.steps": 1}
    with pytest.raises(TrainingStopped, match="no answer of the batch fits"):
        run_practice(tmp_path / "run", "sft", make_practice("sft", weighing_paths, **changes))


def test_sft_stores_the_tokens_of_the_episodes_that_are_to_be_traced(weighing_paths, tmp_path):
    config = make_practice("sft", weighing_paths, **CHANGES, **{"traced_episodes": 2, "solver.steps": 1})
    with run_practice(tmp_path / "run", "sft", config) as run:
        traces = [trace for row in run.index() if (trace := run.token_trace(row.id))]
    assert len(traces) == 2
    assert all(set(trace.advantages) == {1.0} and len(trace.logprobs) == len(trace.places) for trace in traces)


def test_sft_learns_to_abstain_where_there_is_no_answer(weighing_paths, tmp_path):
    index, model, _ = weighing_paths
    rows = [json.loads(line) for line in write_questions(tmp_path / "all.jsonl", builder).read_text().splitlines()]
    some = "".join(
        json.dumps({**row, "answers": row["answers"][number % 2 :]}) + "\n" for number, row in enumerate(rows)
    )
    long = {"id": "long", "question": "Who built it?", "answers": ["Venn " * 99]}  # it does not fit into a turn
    (tmp_path / "some.jsonl").write_text(some + json.dumps(long) + "\n")
    more = {"solver.dialect": "search-r1", "solver.abstention.allowed": True, "solver.steps": 1, "solver.batch": 17}
    more["solver.limits"] = {"max_turns": 2, "turn_tokens": 24, "sequence_tokens": 256}
    config = make_practice("sft", (index, model, tmp_path / "some.jsonl"), **(CHANGES | more))
    with run_practice(tmp_path / "run", "sft", config) as run:
        episodes, unwritten = list(run.episodes()), values(run, "solver/unwritten")
    assert len(episodes) == 16 and unwritten == [1] and {one.abstained for one in episodes} == {True, False}
    assert all(one.abstained != bool(one.task.question.answers) for one in episodes)


def test_an_answer_from_memory_cannot_be_that_documents_lack_it(weighing_paths):
    """A model that was taught to abstain does so only where documents are searched."""
    config = make_practice("r1", weighing_paths, "solver.abstention.allowed=true")
    with pytest.raises(BadInput, match="cot answers from memory"):
        find_recipe("r1").check(config)


def test_r1_answers_from_memory_and_is_paid_for_the_right_answer(imitated, tmp_path):
    index, model, _ = imitated
    paths = index, model, write_questions(tmp_path / "train.jsonl", builder)
    config = make_practice("r1", paths, **CHANGES, **{"solver.steps": 1})
    with run_practice(tmp_path / "run", "r1", config) as run:
        rows, metrics = run.index(), run.metrics_at(1)
    assert {row.protocol for row in rows} == {"closed-book-cot"} and {row.num_searches for row in rows} == {0}
    right = [row.answer == builder(int(row.task_id.partition("-")[2])) for row in rows]
    assert len(rows) == 16 * 4 and [row.metrics["reward/total"] for row in rows] == right
    assert metrics["reward/mean"] == sum(right) / len(right) and 0 < sum(right) < len(right)
    assert metrics["gradient/norm"] > 0


@pytest.mark.slow
def test_r1_learns_and_its_control_does_not(imitated, tmp_path):
    index, model, _ = imitated
    paths = index, model, write_questions(tmp_path / "train.jsonl", builder)

    def reinforce(seed, shuffle):
        more = {"seed": seed, "solver.attempts": 8, "solver.steps": 8, "solver.learner.learning_rate": 3e-3}
        config = make_practice("r1", paths, **CHANGES, **more, **{"solver.shuffle_advantages": shuffle})
        with run_practice(tmp_path / f"r1-{seed}-{shuffle}", "r1", config) as run:
            return sum(values(run, "reward/mean")[-2:]) / 2

    # The model begins at 0.27 to 0.48. Six seeds ended at 0.50 to 0.55, and with shuffled advantages at 0 to 0.17.
    assert reinforce(0, False) > 0.42 and reinforce(0, True) < 0.27
