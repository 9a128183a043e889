"""Dr. Zero as a whole, on a tiny model, with every real part: episodes, rewards, advantages, learner, store."""

import math
from collections import Counter
from itertools import groupby

import pytest

import village
from dictating import dictating
from quaere.errors import TrainingStopped
from quaere.records import ProposeTask, SolveTask
from quaere.rewards.answers import normalise_answer
from quaere.rewards.proposer import difficulty_reward, parabola_reward
from quaere.runs.checkpoints import find_checkpoints
from quaere.training.learner import Learner
from village_runs import Told, make_config, run_drzero

TWO_STEPS = {"solver.steps": 0, "generation.candidates": 1, "generation.attempts": 0}
ONE_STEP = {**TWO_STEPS, "proposer.steps": 1}
FEW = "proposer.attempts=2"  # where nobody looks at them


@pytest.fixture(scope="module")
def two_steps(paths, tmp_path_factory):
    """Two proposer steps as the paper has them: (run, told). See `village.dictate` for what is proposed."""
    return ablate(paths, tmp_path_factory.mktemp("plain"), "proposer.steps=2")


def ablate(paths, tmp_path, *assignments):
    with dictating(village.dictate):
        return run_drzero(tmp_path / "run", make_config(paths, *assignments, **ONE_STEP))


def proposals(run, step=None):
    """Stored proposer episodes of the proposer phase, with what was measured on them."""
    rows = [row for row in run.index(phase="proposer", protocol="drzero-proposer") if step in (None, row.step)]
    return [(run.episode(row.id), row.metrics) for row in rows]


# -------------------------------------------------------------------------------------------------------- the whole run


@pytest.fixture(scope="module")
def whole(paths, tmp_path_factory):
    """Two iterations. Of what is dictated some is kept and some is not, whatever the model would have written."""
    with dictating(village.dictate):
        return run_drzero(tmp_path_factory.mktemp("whole") / "run", make_config(paths, iterations=2))


def test_a_run_goes_through_its_phases_and_stores_everything(whole):
    run, told = whole
    phases = [(report.iteration, report.phase) for report in told.steps]
    one = ["proposer"] * 2 + ["generation"] * 2 + ["solver"] * 2
    assert phases == [(iteration, phase) for iteration in (0, 1) for phase in one]
    assert [report.step for report in told.steps] == list(range(1, 13))
    assert run.config_text().startswith("model:")
    wanted = """reward/mean reward/format reward/difficulty format/think format/tool format/answer advantage/std
    advantage/zero_variance policy/entropy gradient/norm proposer/tokens proposer/truncated proposer/valid
    proposer/searches_h1 proposer/search_gap proposer/call_validity proposer/duplicates passes/0 passes/mean
    mismatch/mean mismatch/max proposer/tokens_per_s proposer/search_s memory/process_gib loss/policy step/seconds"""
    assert set(wanted.split()) <= set(run.metrics_at(1))
    for episode, measured in proposals(run):
        assert measured["reward/total"] == pytest.approx(measured["reward/format"] + measured["reward/difficulty"])
        assert math.isfinite(measured["advantage"])
        assert episode.task.hops in (1, 2)


def test_every_episode_of_a_step_is_told_as_it_is_done(whole):
    run, told = whole
    playing = [one for one in told.progressed if one.part == "playing"]
    plays = [list(group) for _, group in groupby(playing, key=lambda one: (one.step, one.role, one.num_all))]
    for play in plays:
        done = [one.num_done for one in play]
        assert done == sorted(done) and set(done) == set(
            range(play[0].num_all + 1)
        )  # from its start, before any is done
        assert [one.num_tokens for one in play] == sorted(one.num_tokens for one in play) and play[-1].num_tokens > 0
    assert {(one.phase, one.role) for one in told.progressed} >= {("proposer", "proposer"), ("proposer", "solver")}
    first = [play[-1].num_all for play in plays if play[0].step == 1]
    assert sum(first) == len(run.index(step=1))


def test_the_parts_of_a_step_are_told_in_their_order(whole):
    _, told = whole
    parts = [part for part, _ in groupby(told.progressed, key=lambda one: (one.step, one.part, one.role))]
    assert parts[:4] == [
        (1, "playing", "proposer"),
        (1, "playing", "solver"),
        (1, "learning", "proposer"),
        (1, "saving", "proposer"),
    ]
    learning = [one for one in told.progressed if one.part == "learning"]
    assert all(0 <= one.num_done < one.num_all for one in learning)


def test_one_question_a_document_and_n_attempts_a_valid_question(whole):
    run, told = whole
    for report in told.steps:
        if report.phase != "proposer":
            continue
        cost = {name.removeprefix("cost/"): value for name, value in report.metrics.items() if name.startswith("cost/")}
        episodes = run.index(step=report.step)
        kinds = Counter(row.protocol for row in episodes)
        assert kinds["drzero-proposer"] == cost["proposer_episodes"] == cost["documents"] == 8
        assert kinds["drzero-solver"] == cost["solver_episodes"] == 3 * cost["valid_questions"]
        assert cost["grpo_episodes"] == 20 * cost["documents"]


def test_the_papers_numbers_of_episodes(paths, tmp_path):
    """1 + 5 a document when every question is valid, against the 20 of GRPO with 4 questions x 4 answers."""
    _, told = ablate(paths, tmp_path, "proposer.attempts=5")
    cost = told.steps[0].metrics
    assert cost["cost/proposer_episodes"] == 8
    assert cost["cost/solver_episodes"] == 5 * cost["cost/valid_questions"]
    assert (cost["cost/proposer_episodes"] + cost["cost/solver_episodes"]) <= 0.3 * cost["cost/grpo_episodes"]


def test_the_solver_learns_only_from_kept_questions(whole):
    run, _ = whole
    for iteration in (0, 1):
        candidates = run.candidates(iteration=iteration)
        assert len(candidates) == 16
        kept = {candidate.id for candidate in candidates if candidate.kept}
        assert all(0 < item.num_right < item.num_attempts for item in candidates if item.kept)
        for item in candidates:
            expected = {"never solved": 0, "always solved": item.num_attempts}.get(item.reason)
            assert expected in (None, item.num_right)
        trained = {
            row.task_id for row in run.index(phase="solver") if run.metrics_at(row.step)["run/iteration"] == iteration
        }
        assert trained and trained <= kept < {candidate.id for candidate in candidates}


def test_what_a_solvers_step_had_to_learn_from(whole):
    run, told = whole
    solver = [report for report in told.steps if report.phase == "solver"]
    drawn = {0: set(), 1: set()}
    for report in solver:
        groups = {}
        for row in run.index(step=report.step):
            groups.setdefault(row.task_id, set()).add(row.metrics["answer/exact_match"])
        drawn[report.iteration] |= set(groups)
        metrics = report.metrics
        informative = sum(len(rights) > 1 for rights in groups.values())
        assert metrics["groups/informative"] == informative
        assert metrics["groups/informative_share"] == pytest.approx(informative / len(groups))
        assert metrics["groups/per_minute"] == pytest.approx(60 * informative / metrics["step/seconds"])
        assert metrics["questions/distinct"] == len(drawn[report.iteration])
        num_kept = len(run.candidates(iteration=report.iteration, kept=True))
        assert metrics["questions/epochs"] == pytest.approx(report.phase_step * min(4, num_kept) / num_kept)
    assert solver and all("groups/informative" not in one.metrics for one in told.steps if one.phase != "solver")


def test_generation_keeps_the_best_of_several_samples(paths, tmp_path):
    changes = {"proposer.steps": 0, "solver.steps": 0, "generation.candidates": 8, "generation.attempts": 0}
    config = make_config(paths, "generation.samples=3", **changes)
    run, told = run_drzero(tmp_path / "run", config)
    candidates, rows = run.candidates(), run.index(phase="generation")
    assert told.steps[0].metrics["curriculum/candidates"] == len(candidates) == 8
    samples = {}
    for row in rows:
        samples.setdefault(row.task_id, {})[row.id] = row.metrics["format/total"]
    assert [len(found) for found in samples.values()] == [3] * 8  # all are stored
    for item in candidates:
        task = item.episode_id.rpartition(".")[0]
        assert item.scores["format"] == max(samples[task].values())


def test_generation_uses_the_proposers_own_prompts(whole):
    run, _ = whole
    before = [(e.task.document.id, e.task.hops) for e, _ in proposals(run) if e.id.startswith("i0")]
    generated = [run.episode(item.episode_id).task for item in run.candidates(iteration=0)]
    assert Counter(before) == Counter((task.document.id, task.hops) for task in generated)


def test_phases_train_their_own_role_alone(whole):
    run, _ = whole
    checkpoints = find_checkpoints(run.path / "checkpoints")
    assert [found.step for found in checkpoints] == [10, 11, 12]

    def weights(found, role):
        return (found.path / role / "model.safetensors").read_bytes()

    first, second, last = checkpoints
    # The role that is not in training is stored once.
    inodes = [(found.path / "proposer" / "model.safetensors").stat().st_ino for found in (first, second, last)]
    assert len(set(inodes)) == 1
    assert weights(first, "proposer") == weights(last, "proposer")
    assert weights(first, "solver") != weights(last, "solver")


# ------------------------------------------------------------------------------------------------------------ ablations


@pytest.mark.parametrize("ratio", [(1, 1, 1, 1), (4, 3, 2, 1)])
def test_hop_ratio(paths, tmp_path, ratio):
    total = sum(ratio)
    run, _ = ablate(paths, tmp_path, f"proposer.hop_ratio={list(ratio)}", f"proposer.batch={total}", FEW)
    counts = Counter(episode.task.hops for episode, _ in proposals(run))
    assert [counts[hops] for hops in (1, 2, 3, 4)] == list(ratio)


def test_difficulty_only_where_right_attempts_searched_enough(paths, tmp_path):
    """Questions of three hops, which take two searches; this solver was taught to search once."""
    strict = "proposer.reward.needed_searches=true", "proposer.hop_ratio=[0,0,1]"
    run, _ = ablate(paths, tmp_path, *strict)
    attempts = {}
    for row in run.index(step=1):
        if row.protocol == "drzero-solver":
            results = (result for turn in run.episode(row.id).turns for result in turn.results)
            found = len({normalise_answer(result.query) for result in results if result.hits})
            attempts.setdefault(row.task_id, []).append((row.metrics["answer/exact_match"], found))
    for episode, paid in proposals(run):
        made = attempts.get(episode.id, [])
        counted = sum(right for right, found in made if found >= 2)
        easy = sum(right for right, found in made if found < 2)
        assert paid["attempts/right"] == counted
        assert paid["reward/difficulty"] == difficulty_reward(int(counted), max(2, len(made)), int(easy))


def test_no_format_reward(paths, tmp_path, two_steps):
    run, told = ablate(paths, tmp_path, "proposer.reward.format_weight=0")
    assert all(report.metrics["reward/format"] == 0 for report in told.steps[:1])
    assert all(measured["reward/total"] == measured["reward/difficulty"] for _, measured in proposals(run))
    assert two_steps[1].steps[0].metrics["reward/format"] > 0


def test_parabolic_reward(paths, tmp_path, two_steps):
    for run, pay in (
        (ablate(paths, tmp_path, "proposer.reward.shape=parabola")[0], parabola_reward),
        (two_steps[0], difficulty_reward),
    ):
        tried = [measured for _, measured in proposals(run) if measured["attempts/num"]]
        assert tried
        for measured in tried:
            expected = pay(int(measured["attempts/right"]), int(measured["attempts/num"]))
            assert measured["reward/difficulty"] == pytest.approx(expected)
    assert parabola_reward(2, 3) != difficulty_reward(2, 3)


def test_no_initial_document(paths, tmp_path, two_steps):
    run, _ = ablate(paths, tmp_path, "proposer.document=false")
    assert all(episode.task.document is None for episode, _ in proposals(run))
    assert all(episode.task.document is not None for episode, _ in proposals(two_steps[0]))


def test_more_steps(paths, tmp_path, two_steps):
    _, told = ablate(paths, tmp_path, "proposer.steps=3", "proposer.batch=2", FEW)
    assert sum(report.phase == "proposer" for report in told.steps) == 3
    assert sum(report.phase == "proposer" for report in two_steps[1].steps) == 2


def by_group(run, key, step=1):
    groups = {}
    for episode, measured in proposals(run, step):
        groups.setdefault(key(episode.task), []).append(measured)
    return groups


def sums_to_zero(groups):
    return all(sum(item["advantage"] for item in group) == pytest.approx(0, abs=1e-4) for group in groups.values())


def test_hrpo_compares_questions_of_equal_hops(two_steps):
    groups = by_group(two_steps[0], lambda task: task.hops)
    assert {len(group) for group in groups.values()} == {4}
    assert sums_to_zero(groups)


def test_grpo_compares_questions_about_one_document(paths, tmp_path):
    run, told = ablate(paths, tmp_path, "proposer.advantage=grpo", "proposer.questions=3", "proposer.batch=4")
    groups = by_group(run, lambda task: task.document.id)
    assert {len(group) for group in groups.values()} == {3}
    assert sums_to_zero(groups)
    assert told.steps[0].metrics["cost/proposer_episodes"] == 12


def test_a_global_baseline_compares_the_whole_batch(paths, tmp_path):
    run, _ = ablate(paths, tmp_path, "proposer.advantage=global")
    assert sums_to_zero(by_group(run, lambda task: "all"))
    assert not sums_to_zero(by_group(run, lambda task: task.hops))


def test_biased_deviation_and_lone_groups(paths, tmp_path, two_steps):
    biased, _ = ablate(paths, tmp_path, "proposer.unbiased_std=false")
    plain = {episode.id: measured["advantage"] for episode, measured in proposals(two_steps[0], 1)}
    for episode, measured in proposals(biased, 1):
        assert measured["advantage"] == pytest.approx(plain[episode.id] * math.sqrt(4 / 3), abs=1e-3)
    raw, told = ablate(paths, tmp_path / "raw", "proposer.lone_group=raw", "proposer.batch=2")
    for _, measured in proposals(raw, 1):
        assert measured["advantage"] == pytest.approx(measured["reward/total"], abs=1e-4)
    assert told.steps[0].metrics["advantage/lone"] == 1.0


@pytest.mark.parametrize("how", ["sequence_mean", "token_sum"])
def test_how_the_loss_is_put_together(paths, tmp_path, two_steps, how):
    _, told = ablate(paths, tmp_path, f"proposer.learner.aggregation={how}")
    assert told.steps[0].metrics["gradient/norm"] != pytest.approx(two_steps[1].steps[0].metrics["gradient/norm"])
    assert told.steps[0].metrics["reward/mean"] == two_steps[1].steps[0].metrics["reward/mean"]


def test_kl_to_the_reference(paths, tmp_path, two_steps):
    _, told = ablate(paths, tmp_path, "proposer.learner.kl_beta=0.5", "proposer.steps=2")
    assert told.steps[0].metrics["loss/kl"] == pytest.approx(0, abs=1e-6)
    assert told.steps[1].metrics["loss/kl"] > 0
    assert "loss/kl" not in two_steps[1].steps[1].metrics


def test_shuffled_advantages_belong_to_others(paths, tmp_path, two_steps):
    run, _ = ablate(paths, tmp_path, "proposer.shuffle_advantages=true")
    mine = {episode.id: measured["advantage"] for episode, measured in proposals(run, 1)}
    theirs = {episode.id: measured["advantage"] for episode, measured in proposals(two_steps[0], 1)}
    assert sorted(mine.values()) == pytest.approx(sorted(theirs.values()))
    assert mine != theirs


def test_adapters_on_a_shared_base(paths, tmp_path):
    config = make_config(paths, "adapter.rank=4")
    run, told = run_drzero(tmp_path / "run", config)
    last = find_checkpoints(run.path / "checkpoints")[-1]
    assert {path.name for path in (last.path / "solver").iterdir()} == {
        "adapter_model.safetensors",
        "adapter_config.json",
    }
    assert all(report.metrics.get("mismatch/max", 0) < 1e-3 for report in told.steps)
    # At the last step of the phases in which somebody learns; before, the first step has moved the weights.
    seen = {report.step: report.metrics for report in told.steps if "sampler/update_seen" in report.metrics}
    assert list(seen) == [2, 6]
    assert all(metrics["sampler/update_size"] > 1e-3 for metrics in seen.values())
    assert all(metrics["sampler/update_seen"] == pytest.approx(1, abs=0.01) for metrics in seen.values())


# ----------------------------------------------------------------------------------------------------------- bad health


def test_a_loss_that_is_not_finite_stops_the_run_and_moves_no_weight(paths, tmp_path, monkeypatch):
    def step(learner, samples):
        if learner.num_steps == 1:
            samples = [
                *samples[:-1],
                type(samples[-1])(
                    samples[-1].token_ids,
                    samples[-1].loss_mask,
                    samples[-1].logprobs,
                    (math.nan,) * len(samples[-1].token_ids),
                ),
            ]
        return original(learner, samples)

    original = Learner.step
    monkeypatch.setattr(Learner, "step", step)
    with pytest.raises(TrainingStopped, match="not finite"):
        run_drzero(tmp_path / "run", make_config(paths, **TWO_STEPS))
    monkeypatch.undo()
    told = Told()
    run, _ = run_drzero(tmp_path / "run", make_config(paths, **TWO_STEPS), told)
    assert [report.step for report in told.steps] == [2, 3]
    assert isinstance(run.episode(run.index(step=2)[0].id).task, ProposeTask | SolveTask)


def test_an_alarm_stops_or_rolls_back(paths, tmp_path):
    sick = ["health.min_entropy=9", "health.patience=2", "proposer.steps=3", FEW]
    with pytest.raises(TrainingStopped, match="entropy"):
        ablate(paths, tmp_path / "stop", *sick, "health.policy=stop", "proposer.batch=4")
    told = Told()
    with pytest.raises(TrainingStopped, match="rollbacks did not help"):
        run_drzero(
            tmp_path / "back",
            make_config(paths, *sick, "health.policy=rollback", "health.max_rollbacks=1", **TWO_STEPS),
            told,
        )
    assert [report.step for report in told.steps] == [1, 2, 1, 2]
    # What is drawn after a rollback is drawn anew.
    assert told.steps[0].metrics["policy/entropy"] != told.steps[2].metrics["policy/entropy"]
    assert any("went back from step 2 to step 0" in note for note in told.notes)
    _, told = ablate(paths, tmp_path / "warn", *sick, "proposer.batch=4")
    assert sum(bool(report.alarms) for report in told.steps) == 1
