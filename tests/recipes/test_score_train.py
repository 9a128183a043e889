"""SCORE and its baselines as a person meets them: start, look, stop and go on; and what fails does no harm."""

import json

import pytest
from test_drzero_resume import contents, digest

import newsroom
from dictating import dictating
from quaere.cli.main import main
from quaere.recipes.score.harness import Versions
from quaere.records import Assessment, Rubric
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints
from quaere.training.actors import RolePlay
from score_runs import SCORE, Impatient, Stopped, make_reports, run_reports

pytest.importorskip("sklearn")


@pytest.fixture
def play(newsroom_paths, tmp_path):
    """Two steps in the newsroom, with these values changed."""

    def played(name, *assignments, folder="run", **changes):
        return run_reports(tmp_path / folder, name, make_reports(name, newsroom_paths, *assignments, **changes))

    return played


def rows(run, protocol):
    return [(run.episode(row.id), row) for row in run.index(protocol=protocol)]


# ------------------------------------------------------------------------------------------------------- the smoke test


@pytest.fixture(scope="module")
def smoke(newsroom_paths, tmp_path_factory):
    """Two steps from the command line, with the preset for demos as far as it fits a model this small."""
    root = tmp_path_factory.mktemp("score")
    values = {**SCORE, "schedule": True, "harness.kind": "rules", "harness.every": 1, "rubric_scope": "step"}
    values |= {"evaluator.shown_questions": 1, "evaluator.passes": 2}
    values["evaluator.agreement"] = "words"  # the newsroom's are too short for "content"
    (root / "small.yaml").write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in values.items()))
    index, model, questions = map(str, newsroom_paths)
    where = ["--index", index, "--model", model, "--questions", questions, "--config", str(root / "small.yaml")]
    with dictating(newsroom.dictate):
        assert main(["evolve", "score", "--preset", "demo", *where, "--out", str(root / "run")]) == 0
    return root / "run"


@pytest.fixture(scope="module")
def one_step(newsroom_paths, tmp_path_factory):
    """One step with a rubric a question, whose rubrics are dictated."""
    config = make_reports("score", newsroom_paths, "traced_episodes=1", "solver.steps=1")
    with dictating(newsroom.dictate):
        return run_reports(tmp_path_factory.mktemp("one") / "run", "score", config)


def test_two_steps_play_all_three_acts_and_learn(smoke):
    with Run.open(smoke) as run:
        protocols = [row.protocol for row in run.index()]
        first, last = run.metrics_at(1), run.metrics_at(2)
        assert {row.phase for row in run.index()} == {"reports"}
    assert protocols.count("rubric-chooser") == 2  # one a step
    assert protocols.count("report-writer") == 2 * 4 * newsroom.NUM_REPORTS
    assert protocols.count("report-assessor") == 2 * 4 * 2  # two passes over every question
    wanted = {"reward/mean", "reward/validity", "reward/quality", "reward/share", "consistency/mean", "diversity/mean"}
    wanted |= {"check/grounded", "check/resolved", "scores/spread", "scores/ceiling", "position/first_minus_last"}
    wanted |= {"gradient/norm", "loss/kl", "policy/entropy", "evaluator/gradient_norm", "evaluator/loss_kl"}
    wanted |= {"evaluator/baseline", "evaluator/advantage", "harness/k", "verification/searches"}
    wanted.add("reports/tokens_per_s")
    assert wanted <= set(first)
    assert first["reports/answered"] > 0.9 and first["assessments/readable"] > 0.5 and first["rubrics/valid"] == 1
    # The baseline begins at 0, so the first signal is the agreement itself.
    assert first["evaluator/advantage"] == pytest.approx(first["consistency/mean"])
    assert first["evaluator/baseline"] == pytest.approx(0.3 * first["consistency/mean"])
    assert last["evaluator/advantage"] == pytest.approx(last["consistency/mean"] - first["evaluator/baseline"])


def test_a_run_is_shown_with_its_gauges_and_harnesses(smoke, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["runs", "show", str(smoke)]) == 0
    shown = capsys.readouterr().out
    for name in ("reward/mean", "consistency/mean", "check/grounded", "scores/ceiling", "scores/spread"):
        assert name in shown
    assert "harness 0 from the start: k 2 of 3, must_include factuality" in shown and "looked at 2 times" in shown
    assert "--candidates" not in shown  # such a run writes no questions
    assert main(["runs", "show", str(smoke), "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)["harness"]
    assert [version["step"] for version in versions] == [0, 1, 2] and versions[1]["statistics"]["num_scored"] > 0


def test_every_kind_of_episode_is_shown_with_what_it_was_about_and_what_it_earned(smoke, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    with Run.open(smoke) as run:
        kinds = ("rubric-chooser", "report-writer", "report-assessor")
        names = {kind: run.index(protocol=kind, answered=True)[0].id for kind in kinds}
    wanted = {
        "rubric-chooser": ["Harness 0: 2 of factuality, coverage, insight", "Hints: try", "rubric/valid 1"],
        "report-writer": ["Judged by: factuality", "citation", "reward/total", "score/factuality", "advantage"],
        "report-assessor": ["Report 1: It stands", "Report 2: It stands", "assessment/reports"],
    }
    for kind, name in names.items():
        assert main(["runs", "show", str(smoke), name]) == 0
        shown = capsys.readouterr().out
        assert [words for words in wanted[kind] if words not in shown] == []
        assert main(["runs", "show", str(smoke), name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["metrics"]


@pytest.mark.parametrize("role", [(), ("--role", "actor")])
def test_an_actor_is_not_evaluated_by_answers(smoke, tmp_path, capsys, role):
    (tmp_path / "asked.jsonl").write_text('{"question": "Where?", "answers": ["There"]}\n')
    asked = ["eval", "--run", smoke.name, *role, "--questions", str(tmp_path / "asked.jsonl"), "--closed-book"]
    assert main([*asked, "--runs", str(smoke.parent)]) == 2
    said = capsys.readouterr().err
    assert "was trained to write reports, and `eval` scores short answers only" in said
    assert f"quaere export {smoke} --merge --out DIR" in said


def test_what_is_kept_with_every_episode(smoke):
    with Run.open(smoke) as run:
        for episode, row in rows(run, "report-writer"):
            assert "check/grounded" in row.metrics or row.metrics["report/finished"] == 0
            assert ("advantage" in row.metrics) == ("reward/total" in row.metrics)
            assert episode.task.rubric.primary == "factuality"
        judged = [row.metrics for _, row in rows(run, "report-writer") if "score/factuality" in row.metrics]
        assert judged and all({"reward/total", "report/searches"} <= set(metrics) for metrics in judged)
        for metrics in judged:  # a * (1 + w s), whatever the rubric weighed
            a, quality = metrics["score/factuality"] / 10, metrics["reward/quality"]
            assert metrics["reward/total"] == pytest.approx(a * (1 + quality) * metrics["reward/verified"])
        assert all(row.metrics["rubric/valid"] == 1 for _, row in rows(run, "rubric-chooser"))
        passes = rows(run, "report-assessor")
        assert all(row.metrics["assessment/reports"] <= newsroom.NUM_REPORTS for _, row in passes)
        assert any(isinstance(episode.outcome, Assessment) for episode, _ in passes)


def test_every_harness_is_on_file_with_what_led_to_it(smoke):
    versions = Versions(smoke).read()
    assert [version.step for version in versions] == [0, 1, 2]
    assert versions[0].why == "default" and versions[0].statistics is None
    assert versions[1].statistics.step == 1 and versions[1].statistics.num_scored > 0
    assert versions[2].statistics.dimension_counts["coverage"] + versions[2].statistics.dimension_counts["insight"] == 2


def test_weights_moved_and_there_is_one_role(smoke):
    checkpoints = find_checkpoints(smoke / "checkpoints")
    assert [path.name for path in checkpoints[-1].path.iterdir() if path.is_dir()] == ["actor"]
    adapters = [found.path / "actor" / "adapter_model.safetensors" for found in (checkpoints[0], checkpoints[-1])]
    assert adapters[0].read_bytes() != adapters[1].read_bytes()


def test_what_was_trained_can_be_taken_out_and_asked_for_a_report(smoke, newsroom_paths, tmp_path, capsys):
    assert main(["export", str(smoke), "--merge", "--out", str(tmp_path / "out")]) == 0
    notes = json.loads((tmp_path / "out" / "quaere.json").read_text())
    assert (notes["recipe"], notes["role"], notes["style"]) == ("score", "actor", "brief")
    asked = ["report", "Halm", "--model", str(tmp_path / "out"), "--index", str(newsroom_paths[0]), "--json"]
    limits = ["--max-turns", "3", "--turn-tokens", "64", "--sequence-tokens", "640"]  # it writes to the last of them
    assert main([*asked, *limits, "--no-strict", "--runs", str(tmp_path)]) == 0  # it writes nothing with support
    assert "Conclusion" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["score", "report-grpo", "report-dpo"])
def test_what_a_dry_run_says(newsroom_paths, tmp_path, capsys, name):
    index, model, questions = map(str, newsroom_paths)
    where = ["--index", index, "--model", model, "--questions", questions, "--runs", str(tmp_path)]
    assert main(["evolve", name, *where, "--preset", "demo", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "8, each seen 0.5 times" in said and "2 steps of 2 questions, 3 reports on each" in said and "memory" in said
    assert ("never changes" in said or "rules" in said) and not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------------ stop and go on


# Of whole weights the runs of Dr. Zero show the same.
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_a_run_that_was_stopped_ends_like_one_that_was_not(newsroom_paths, tmp_path, rank):
    changes = {"solver.steps": 4, "schedule": True, "harness.kind": "rules", "harness.every": 2, "adapter.rank": rank}
    changes |= {"checkpoints.every": 2, "checkpoints.keep": 9, "health.policy": "warn"}
    changes |= {"solver.batch": 2, "solver.minibatch": 1}
    config = make_reports("score", newsroom_paths, **changes)
    run_reports(tmp_path / "straight", "score", config).close()
    for last in (1, 3):  # once before the first checkpoint but one, once a step beyond a checkpoint
        with pytest.raises(Stopped):
            run_reports(tmp_path / "stopped", "score", config, Impatient(last))
    run_reports(tmp_path / "stopped", "score", config).close()
    assert digest(tmp_path / "stopped") == digest(tmp_path / "straight")
    ours, theirs = contents(tmp_path / "stopped"), contents(tmp_path / "straight")
    for found in (ours, theirs):
        for name in [name for name in found[2] if name.endswith("search_s")]:
            del found[2][name]
    assert ours == theirs
    harnesses = [(tmp_path / name / "harness.jsonl").read_bytes() for name in ("stopped", "straight")]
    assert harnesses[0] == harnesses[1]
    last = [find_checkpoints(tmp_path / name / "checkpoints")[-1].path for name in ("stopped", "straight")]
    for file in ("score.json", "scheduler.json"):
        assert (last[0] / file).read_bytes() == (last[1] / file).read_bytes()


# -------------------------------------------------------------------------------------------- what fails does no harm


def test_rubrics_that_break_the_rules_are_replaced_and_train_nothing(play):
    run = play("score", "harness.dimensions.k=3", "solver.steps=1")  # it was taught to choose two
    metrics = run.metrics_at(1)
    assert metrics["rubrics/valid"] == 0 and metrics["evaluator/baseline"] == 0
    assert not any(name.startswith("evaluator/gradient") or name == "evaluator/advantage" for name in metrics)
    assert metrics["reports/answered"] > 0.5
    told = {episode.task.rubric for episode, _ in rows(run, "report-writer")}
    assert [rubric.dimensions for rubric in told] == [("factuality", "coverage", "insight")]
    failed = [episode.turns[-1].failure for episode, _ in rows(run, "rubric-chooser")]
    assert {failure.boundary for failure in failed} <= {"protocol", "limit"} and all(failed)


def test_what_nobody_judged_is_learned_from_by_nobody(play):
    # It scores up to 9, and most of that is off the scale.
    run = play("score", "evaluator.score_scale=0.5", "solver.steps=1")
    metrics = run.metrics_at(1)
    assert metrics["assessments/judged"] == 0 and "gradient/norm" not in metrics
    assert "evaluator/gradient_norm" in metrics  # agreement is known all the same
    finished = [row.metrics for _, row in rows(run, "report-writer") if row.metrics["report/finished"]]
    assert finished and not any("reward/total" in metrics or "advantage" in metrics for metrics in finished)


def test_reports_that_were_hardly_looked_into_earn_nothing(play):
    run = play("score", "evaluator.tau=2", "solver.steps=1")
    metrics = run.metrics_at(1)
    assert metrics["reward/mean"] == 0 and metrics["reward/verified"] == 0 and metrics["verification/searches"] <= 1
    assert metrics["advantage/nonzero"] == 0 and "gradient/norm" not in metrics


def test_the_agreement_that_is_shown_is_the_one_that_is_learned_from(one_step, play):
    with dictating(newsroom.dictate):
        content = play("score", "evaluator.agreement=content", "solver.steps=1").metrics_at(1)
    words = one_step.metrics_at(1)
    for metrics in (words, content):
        assert metrics["evaluator/advantage"] == pytest.approx(metrics["consistency/mean"])  # the first baseline is 0
    assert content["consistency/mean"] < words["consistency/mean"]  # some conclusions are a short word


def test_a_separate_validity_that_was_not_given(play):
    assert play("score", "evaluator.validity=separate", "solver.steps=1").metrics_at(1)["assessments/judged"] == 0


def test_a_dead_search_engine_costs_the_first_look_and_not_the_run(play, monkeypatch):
    from quaere.errors import SearchFailed
    from quaere.search.searcher import LocalSearcher

    search = LocalSearcher.search

    async def lame(self, queries, topk):
        if topk == 1:
            raise SearchFailed("gone", kind="unreachable")
        return await search(self, queries, topk)

    monkeypatch.setattr(LocalSearcher, "search", lame)
    run = play("score", "initial_retrieval=1", "solver.steps=1")
    assert run.metrics_at(1)["rubrics/retrieval_failed"] == 1
    assert not rows(run, "rubric-chooser")[0][0].task.passages


# ------------------------------------------------------------------------------------------------------------- options


def test_who_is_frozen_learns_nothing(play):
    run = play("score", "evaluator.frozen=true", "solver.steps=1", folder="a")
    assert "gradient/norm" in run.metrics_at(1) and "evaluator/gradient_norm" not in run.metrics_at(1)
    assert run.metrics_at(1)["evaluator/baseline"] > 0  # it moves all the same
    run = play("score", "solver.frozen=true", "solver.batch=2", "solver.learner.warmup_ratio=1", folder="b")
    assert all("gradient/norm" not in run.metrics_at(step) for step in (1, 2))
    rates = [run.metrics_at(step)["evaluator/learner_rate"] for step in (1, 2)]
    assert rates == pytest.approx([0.5e-3, 1e-3])  # the schedule moves on without the solver


def test_the_evaluator_learns_at_its_own_rate_and_every_so_often(play):
    run = play("score", "evaluator.alpha=0.25", "evaluator.every=2", "solver.learner.warmup_ratio=0")
    assert "evaluator/gradient_norm" not in run.metrics_at(1)
    assert run.metrics_at(2)["evaluator/learner_rate"] == pytest.approx(0.25e-3)
    assert run.metrics_at(2)["learner/rate"] == pytest.approx(1e-3)
    assert 0 < run.metrics_at(1)["evaluator/baseline"] != run.metrics_at(2)["evaluator/baseline"]


@pytest.mark.parametrize(("moments", "sets"), [("shared", {""}), ("own", {"", "evaluator"})])
def test_each_role_has_moments_of_its_own_if_so_wished(play, one_step, moments, sets):
    from safetensors.torch import load_file

    from quaere.runs.checkpoints import find_checkpoints

    changed = ("score", "evaluator.moments=own", "traced_episodes=1", "solver.steps=1")
    run = one_step if moments == "shared" else play(*changed)
    assert "gradient/norm" in run.metrics_at(1) and "evaluator/gradient_norm" in run.metrics_at(1)
    traced = {row.protocol for row in run.index(step=1) if run.token_trace(row.id)}
    assert traced == {"report-writer", "rubric-chooser"}  # one of each update
    saved = load_file(find_checkpoints(run.path / "checkpoints")[-1].path / "optimizer.safetensors")
    assert {name.rpartition("/")[0] for name in saved if name != "num_steps"} == sets


def weights_of(run, role):
    from safetensors.torch import load_file

    folder = find_checkpoints(run.path / "checkpoints")[-1].path / role
    return {
        name: value.tolist() for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()
    }


@pytest.mark.parametrize("rank", [0, 4])
def test_an_evaluator_of_its_own_weights_leaves_the_solvers_alone(play, rank, monkeypatch):
    """With shared weights, what the evaluator learns moves the solver too."""
    played, usual = set(), RolePlay.play

    def note(self, role, jobs, *given, **how):
        played.update((role, job.protocol.name) for job in jobs)
        return usual(self, role, jobs, *given, **how)

    monkeypatch.setattr(RolePlay, "play", note)
    changed = ("score", "solver.steps=1", f"adapter.rank={rank}", "traced_episodes=1")
    with dictating(newsroom.dictate):
        own = play(*changed, "evaluator.weights=own", folder="own")
        still = play(*changed, "evaluator.weights=own", "evaluator.frozen=true", folder="still")
    assert own.metrics_at(1)["evaluator/gradient_norm"] > 0 and "evaluator/gradient_norm" not in still.metrics_at(1)
    assert weights_of(own, "actor") == weights_of(still, "actor")
    assert weights_of(own, "evaluator") != weights_of(still, "evaluator")
    traced = {row.protocol for row in own.index(step=1) if own.token_trace(row.id)}
    assert traced == {"report-writer", "rubric-chooser"}
    chosen, assessed = ("evaluator", "rubric-chooser"), ("evaluator", "report-assessor")
    assert played == {("actor", "report-writer"), chosen, assessed}


def test_a_run_with_two_sets_of_weights_and_pairs_of_rubrics_goes_on_as_if_never_stopped(newsroom_paths, tmp_path):
    changed = ("solver.steps=3", "solver.batch=2", "evaluator.weights=own", "evaluator.baseline=pair")
    config = make_reports("score", newsroom_paths, *changed)
    straight = run_reports(tmp_path / "straight", "score", config)
    reports = [episode.task for episode, row in rows(straight, "report-writer") if row.step == 1]
    assert len(reports) == 2 * 2 * newsroom.NUM_REPORTS and len({task.question.text for task in reports}) == 2
    one_step = straight.metrics_at(1)
    assert one_step["evaluator/advantage"] == pytest.approx(0, abs=1e-12)  # one's gain is the other's loss
    assert straight.metrics_at(1)["evaluator/baseline"] == 0
    # A step in which the reports of all pairs agree equally teaches the evaluator nothing.
    metrics = [straight.metrics_at(step) for step in (1, 2, 3)]
    mismatches = [one["evaluator/mismatch_mean"] for one in metrics if "evaluator/mismatch_mean" in one]
    assert mismatches and max(mismatches) < 1e-5
    straight.close()
    with pytest.raises(Stopped):
        run_reports(tmp_path / "stopped", "score", config, Impatient(2))
    run_reports(tmp_path / "stopped", "score", config).close()
    assert digest(tmp_path / "stopped") == digest(tmp_path / "straight")
    file = "evaluator-optimizer.safetensors"
    last = [find_checkpoints(tmp_path / name / "checkpoints")[-1].path / file for name in ("stopped", "straight")]
    assert last[0].read_bytes() == last[1].read_bytes()


def test_a_fixed_rubric_is_never_asked_for(play):
    run = play("score", "fixed_rubric=factuality, insight 0.3", "solver.steps=1")
    assert not rows(run, "rubric-chooser") and "evaluator/advantage" not in run.metrics_at(1)
    assert {episode.task.rubric.text for episode, _ in rows(run, "report-writer")} == {"factuality, insight 0.3"}


def test_a_rubric_a_step_is_everybodys_and_a_rubric_a_question_its_own(smoke, one_step):
    with Run.open(smoke) as run:  # with `rubric_scope=step` and `shown_questions=1`
        asked = rows(run, "rubric-chooser")
        assert len(asked) == 2 and len(asked[0][0].task.questions) == 1
        for number, (episode, _) in enumerate(asked):
            told = {e.task.rubric for e, row in rows(run, "report-writer") if row.step == number + 1}
            assert told == {episode.outcome} and isinstance(episode.outcome, Rubric)
    asked = {episode.id.removesuffix("-rubric"): episode.outcome for episode, _ in rows(one_step, "rubric-chooser")}
    assert len(asked) == 4
    for episode, _ in rows(one_step, "report-writer"):
        assert asked[episode.id.rpartition("-")[0]] == episode.task.rubric


def test_only_the_rubrics_own_tokens_are_learned_from(one_step):
    from quaere.recipes.score.rubric_signals import rubric_sample

    (episode, _), *_ = rows(one_step, "rubric-chooser")
    sample, whole = rubric_sample(episode, 0.5, True), rubric_sample(episode, 0.5, False)
    start = episode.turns[0].acts_at
    assert all(place >= start for place, flag in enumerate(sample.loss_mask) if flag)
    assert sum(sample.loss_mask) <= sum(whole.loss_mask) == sum(episode.loss_mask)
    assert set(sample.advantages) == {0.0, 0.5}


def test_a_batch_may_be_learned_from_in_parts(play):
    rising = "solver.learner.warmup_ratio=1", "solver.batch=2"
    whole = play("score", *rising, folder="whole")
    parts = play("score", *rising, "solver.minibatch=1", folder="parts")
    assert whole.metrics_at(1)["batch/updates"] == 1
    assert parts.metrics_at(1)["batch/updates"] == 2
    assert parts.metrics_at(1)["batch/model_tokens"] <= whole.metrics_at(1)["batch/model_tokens"]
    # However many updates a step has, the rate rises by one step of its schedule.
    for run in (whole, parts):
        assert [run.metrics_at(step)["learner/rate"] for step in (1, 2)] == pytest.approx([0.5e-3, 1e-3])


def test_an_alarm_stops_the_run(newsroom_paths, tmp_path):
    from quaere.errors import TrainingStopped

    changes = {"health.policy": "stop", "health.patience": 1, "evaluator.tau": 2, "solver.steps": 4}
    with pytest.raises(TrainingStopped, match="advantages: none of the actor's episodes"):
        run_reports(tmp_path / "run", "score", make_reports("score", newsroom_paths, **changes))


# ----------------------------------------------------------------------------------------------------------- baselines


@pytest.fixture(scope="module")
def preferred(newsroom_paths, tmp_path_factory):
    """Two steps of DPO, on pairs of which one is dictated."""
    config = make_reports("report-dpo", newsroom_paths, "dpo_beta=0.3")
    with dictating(newsroom.dictate):
        return run_reports(tmp_path_factory.mktemp("preferred") / "run", "report-dpo", config)


@pytest.mark.parametrize("name", ["report-grpo", "report-dpo"])
def test_reports_under_checks(play, preferred, name):
    with dictating(newsroom.dictate):
        run = preferred if name == "report-dpo" else play(name, "solver.steps=1")
    metrics = run.metrics_at(1)
    assert {row.protocol for row in run.index()} == {"report-writer"} and len(run.index(step=1)) == 4 * 4
    assert {episode.task.rubric for episode, _ in rows(run, "report-writer")} == {None}
    for _, row in rows(run, "report-writer"):
        names = ("resolved", "cited", "overlap", "coverage", "length")
        parts = [row.metrics.get(f"check/{name}", 0.0) for name in names]  # one that was never finished has none
        assert row.metrics["reward/total"] == pytest.approx(sum(parts) / 5)
    assert metrics["report/finished"] > 0
    assert {"reward/mean", "check/grounded", "consistency/mean", "gradient/norm"} <= set(metrics)
    assert ("dpo/margin" in metrics) == (name == "report-dpo")


def test_pairs_are_the_best_and_the_worst_of_a_question(preferred):
    run = preferred
    groups = {}
    for episode, row in rows(run, "report-writer"):
        groups.setdefault((row.step, episode.task.question.id), []).append(row.metrics)
    for metrics in groups.values():
        rewards = [one["reward/total"] for one in metrics]
        worth = {one["reward/total"]: one["advantage"] for one in metrics if "advantage" in one}
        if max(rewards) > min(rewards):
            assert worth[max(rewards)] > 0 > worth[min(rewards)] and len(worth) == 2
        else:
            assert not worth
    # Nobody has moved yet: no pair is preferred, and each pulls with `dpo_beta`.
    assert run.metrics_at(1)["dpo/margin"] == pytest.approx(0, abs=1e-6)
    assert run.metrics_at(1)["advantage/max_abs"] == pytest.approx(0.3, abs=1e-5)
    assert run.metrics_at(2)["dpo/margin"] != 0
    assert 0 <= run.metrics_at(2)["dpo/accuracy"] <= 1 < run.metrics_at(2)["dpo/pairs"]


@pytest.mark.parametrize("rank", [0, 4])
def test_a_judge_that_never_changes(newsroom_paths, tmp_path, rank):
    changes = {"judge": "model", "fixed_rubric": "factuality, coverage 0.3", "adapter.rank": rank, "solver.steps": 1}
    with dictating(lambda job: ["<search>Halm</search>"] * 9 if getattr(job.task, "number", 1) == 0 else None):
        run = run_reports(tmp_path / "run", "report-grpo", make_reports("report-grpo", newsroom_paths, **changes))
    assert {row.protocol for row in run.index()} == {"report-writer", "report-assessor"}
    metrics = run.metrics_at(1)
    assert metrics["assessments/readable"] > 0.5 and metrics["reward/mean"] > 0
    totals = [(episode.task.number, row.metrics["reward/total"]) for episode, row in rows(run, "report-writer")]
    assert all((total == 0) == (number == 0) for number, total in totals)  # nothing for a report that never ended
    first, last = (find_checkpoints(tmp_path / "run" / "checkpoints")[place].path for place in (0, -1))
    file = "adapter_model.safetensors" if rank else "model.safetensors"
    assert (first / "judge" / file).read_bytes() == (last / "judge" / file).read_bytes()
    assert (first / "actor" / file).read_bytes() != (last / "actor" / file).read_bytes()


def test_baselines_go_on_too(newsroom_paths, tmp_path):
    config = make_reports("report-dpo", newsroom_paths)
    run_reports(tmp_path / "straight", "report-dpo", config).close()
    with pytest.raises(Stopped):
        run_reports(tmp_path / "stopped", "report-dpo", config, Impatient(1))
    run_reports(tmp_path / "stopped", "report-dpo", config).close()
    assert digest(tmp_path / "stopped") == digest(tmp_path / "straight")
