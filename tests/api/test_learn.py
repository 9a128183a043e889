"""`quaere.learn`: from documents to an agent in one call, which goes on after a kill."""

import itertools
import json
import re
import shlex
import shutil
from types import SimpleNamespace

import pytest
from msgspec import structs

import quaere
from learning_runs import BUILDERS, FORM, SMALL, digest, let_write, make_place, stop_at, write_pages
from quaere.api import learning, learning_plan
from quaere.api.checked_questions import read_checked
from quaere.api.learning_plan import fit_steps, make_plan
from quaere.api.learning_request import ask_for
from quaere.api.learning_times import Answered, count_steps
from quaere.cli.learn import read_assignments
from quaere.cli.main import build_parser
from quaere.disk import write_file
from quaere.rewards.abstention import has_hidden_answer
from village_runs import SMALL as LOOP


def stop_each(sources, given, stops):
    for text in stops:
        with pytest.raises(ZeroDivisionError, match=re.escape(text)):
            quaere.learn(sources, **given, **stop_at(text))


@pytest.fixture(scope="module")
def place(weighing_paths, tmp_path_factory):
    """The documents, and the other arguments, of a model that knows the form."""
    folder = tmp_path_factory.mktemp("learn")
    return weighing_paths[0].parent / "corpus.jsonl", make_place(weighing_paths, folder) | {"settings": SMALL}


@pytest.fixture(scope="module")
def told(place):
    """A whole run, and what was said in it."""
    corpus, given = place
    notes, parts = [], []
    progress = {"on_note": notes.append, "on_progress": lambda *part: parts.append(part)}
    return quaere.learn(corpus, **given, **progress), notes, parts


def test_all_stages_leave_their_output(told):
    learned, notes, parts = told
    names = "plan.json index questions.jsonl practice.jsonl held.jsonl before.json run after.json agent".split()
    assert all((learned.out / name).exists() for name in [*names, "report.json", "report.html"])
    assert not (learned.out / "form").exists()  # it was taught before
    assert list(learned.seconds) == ["index", "questions", "split", "before", "reinforcement", "after", "agent"]
    assert notes[0].startswith("documents: ") and any(f"quaere view {learned.out / 'run'}" in line for line in notes)
    assert "the interval of the gain is over 4 clusters of linked documents" in notes
    measured = [line for line in notes if line.startswith("measuring on ")]
    assert len(measured) == 2 and all(
        "held back, " in line and "again with the answer hidden" in line for line in measured
    )
    num = len(learned.after.questions)
    assert [part[1:3] for part in parts if part[0] == "answering"] == 2 * [(one + 1, num) for one in range(num)]
    assert [part[:3] for part in parts if part[0] == "reinforcing"] == [("reinforcing", 1, 2), ("reinforcing", 2, 2)]


def test_questions_are_held_back_by_document(told):
    learned = told[0]
    sides = [read_checked(learned.out / f"{name}.jsonl") for name in ("practice", "held")]
    practised, held = ({span.doc_id for question in side for span in question.evidence} for side in sides)
    assert (len(sides[0]), len(sides[1])) == (20, 8) and not practised & held
    sentences = [{span.text for question in side for span in question.evidence} for side in sides]
    shared = sentences[0] & sentences[1]
    assert shared and all(len(text.split()) == 3 for text in shared)  # "Venn built it.", but not "Venn paid for it."


def test_what_it_says_at_the_end(told):
    learned = told[0]
    assert learned.gain.num == 8 and learned.gain.low <= learned.gain.mean <= learned.gain.high
    held = {question.id for question in read_checked(learned.out / "held.jsonl")}
    before, after = (
        {score.id: score.exact_match for score in one.questions if score.id in held}
        for one in (learned.before, learned.after)
    )
    assert learned.gain.mean == pytest.approx((sum(after.values()) - sum(before.values())) / 8)
    assert learned.kinds == {"single": 32} and learned.searches == {"1": 32}
    assert len(learned.examples) == 10 and all(one.answer in one.sentence for one in learned.examples)
    assert len(learned.wrong) == sum(not right for right in after.values())
    assert len(learned.learned) == sum(after[name] > before[name] for name in after)
    assert json.loads((learned.out / "report.json").read_text())["agent"] == str(learned.agent)


def test_without_a_gain_the_agent_is_the_start_unless_it_is_wanted_anyway(told, place):
    learned, notes, _ = told
    corpus, given = place
    assert not learned.is_better and not learned.is_trained
    assert "not shown to be better: the agent is the model before reinforcement" in notes
    assert digest(learned.agent) == digest(given["model"])
    anyway = quaere.learn(corpus, **given, anyway=True)
    assert anyway.is_trained and digest(anyway.agent) != digest(given["model"])
    with quaere.Agent(anyway.agent, anyway.index, device="cpu") as agent:
        assert agent.protocol.name == "search-r1-solver" and agent.ask("Who built Halm?").episode.turns


def test_rejected_weights_do_not_stay_after_a_kill(told, place, tmp_path, monkeypatch):
    given = {**place[1], "out": tmp_path / "out"}
    shutil.copytree(told[0].out, given["out"])

    def stop(path, content):
        if path.name == "agent.json":  # the agent itself is written
            raise ZeroDivisionError
        write_file(path, content)

    for anyway in (False, True):
        assert quaere.learn(place[0], **given, anyway=not anyway).is_trained is not anyway
        with monkeypatch.context() as patch:
            patch.setattr(learning, "write_file", stop)
            with pytest.raises(ZeroDivisionError):
                quaere.learn(place[0], **given, anyway=anyway)
        learned = quaere.learn(place[0], **given, anyway=not anyway)
        assert (digest(learned.agent) == digest(place[1]["model"])) is anyway


def test_the_agent_of_the_first_learning_is_not_exchanged_during_an_update(told, place, tmp_path):
    given = {**place[1], "out": tmp_path / "out"}
    shutil.copytree(told[0].out, given["out"])
    assert not quaere.learn(place[0], **given).is_trained
    (given["out"] / "updates/1").mkdir(parents=True)
    with pytest.raises(quaere.BadInput, match="was updated since") as caught:
        quaere.learn(place[0], **given, anyway=True)
    assert caught.value.hint == "the command without --anyway, or with --update"
    assert not quaere.learn(place[0], **given).is_trained
    assert digest(given["out"] / "agent") == digest(place[1]["model"])


def test_questions_without_an_answer_measure_no_gain(told, place, tmp_path):
    held = {question.id for question in read_checked(told[0].out / "held.jsonl")}
    rows = [json.loads(line) for line in place[1]["questions"].read_text().splitlines()]
    for row in rows:
        row["answers"] = row["answers"] * (row["id"] not in held)
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {**place[1], "questions": tmp_path / "questions.jsonl", "out": tmp_path / "out"}
    with pytest.raises(quaere.BadInput, match="20 to practise on and 0 with an answer to hold back"):
        quaere.learn(place[0], **given)


def test_both_measurements_ask_alike_and_the_exported_start_as_it_was_measured(weighing_paths, tmp_path):
    given = make_place(weighing_paths, tmp_path) | {"settings": SMALL}
    notes = {"recipe": "search-r1", "evidence": True}  # the model was taught in another style, to quote
    (given["model"] / "warmup.json").write_text(json.dumps(notes))
    learned = quaere.learn(weighing_paths[0].parent / "corpus.jsonl", **given)
    assert learned.before.settings == learned.after.settings and not learned.is_trained
    config = learned.plan.config(learned.plan.model)
    with quaere.Agent(learned.agent, learned.index, device="cpu") as agent:
        assert agent.protocol.style == config.prompts == "brief" and agent.limits == config.solver.limits
        asked = (agent.protocol.name, agent.protocol.evidence, agent.protocol.abstention, agent.min_overlap)
    assert asked == ("search-r1-solver", False, True, 0.0) and not learned.before.settings["evidence"]
    with quaere.Run.open(learned.out / "before") as before, quaere.Run.open(learned.out / "after") as after:
        opened = [min(run.episodes(), key=lambda one: one.id).token_ids[:30] for run in (before, after)]
    assert opened[0] == opened[1]


def test_a_call_that_is_repeated_does_nothing_again(told, place):
    corpus, given = place
    before = {path: path.stat().st_mtime_ns for path in given["out"].rglob("*.safetensors") if "run" in path.parts}
    notes = []
    again = quaere.learn(corpus, **given, on_note=notes.append)
    assert not any(line.startswith(("documents: ", "measuring on ")) for line in notes)
    assert again.gain == told[0].gain and before == {path: path.stat().st_mtime_ns for path in before}


def test_killed_between_and_within_stages_it_ends_with_the_same_weights(told, place, tmp_path):
    corpus, given = place
    given = {**given, "out": tmp_path / "out"}
    stop_each(corpus, given, ["indexing", "20 questions", "answering 3", "reinforcing 1", "answering 8"])
    quaere.learn(corpus, **given)
    assert digest(given["out"] / "run") == digest(told[0].out / "run")
    assert (given["out"] / "before.json").read_bytes() == (told[0].out / "before.json").read_bytes()


def test_killed_while_it_writes_or_teaches_it_goes_on(weighing_paths, tmp_path, monkeypatch):
    let_write(monkeypatch)
    given = make_place(weighing_paths, tmp_path, taught=False) | {"settings": {**SMALL, **FORM, "writer.minutes": 0}}
    del given["questions"]
    pages, out = write_pages(tmp_path / "pages"), given["out"]
    stop_each(pages, {**given, "out": tmp_path / "whole"}, ["measuring"])
    stop_each(pages, given, ["facts asked about (48 kept)"])
    assert (out / "questions.jsonl.unfinished").exists() and not (out / "questions.jsonl").exists()
    stop_each(pages, given, ["teaching the form 1"])
    assert len(read_checked(out / "questions.jsonl")) == len(BUILDERS) and not (out / "form").exists()
    stop_each(pages, given, ["measuring"])
    assert (out / "questions.jsonl").read_bytes() == (tmp_path / "whole/questions.jsonl").read_bytes()
    assert digest(out / "form") == digest(tmp_path / "whole/form")
    assert json.loads((out / "form/warmup.json").read_text())["abstention"] == 0.15


def test_an_index_is_used_where_it_is(weighing_paths, place, tmp_path):
    given = {**place[1], "out": tmp_path / "out"}
    stop_each(weighing_paths[0], given, ["measuring"])
    assert not (given["out"] / "index").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "openai:m@http://127.0.0.1:9/v1"}, "behind an endpoint cannot be trained"),
        ({"recipe": "score"}, "learn knows no recipe score"),
        ({"minutes": 0}, "minutes must be above 0"),
        ({"minutes": float("inf")}, "minutes must be above 0 and below inf, not inf"),
        ({"minutes": float("nan")}, "minutes must be above 0 and below inf, not nan"),
        (
            {"minutes": 0.01, "settings": {}},
            "in 0.01 minutes there is time for 2 steps of search-r1 here\ntry: --minutes 1,",
        ),
        ({"settings": {"solver.stepps": 3}}, "did you mean solver.steps?"),
        ({"settings": {"form.episods": 3}}, "episods"),
        ({"settings": {"writer.tries": 0}}, "tries must be at least 1"),
        ({"settings": {"form.facts": [1, 1, 1, 1]}}, "needs 5 turns for 4 facts, and 3 are allowed"),
        ({"sources": "nowhere"}, "nowhere does not exist"),
        ({"sources": []}, "no documents are named"),
        ({"questions": "nowhere.jsonl"}, "nowhere.jsonl does not exist"),
        ({"sources": "HERE"}, "are one folder, or one is inside the other"),
        ({"sources": "HERE/out"}, "are one folder, or one is inside the other"),
        ({"sources": "HERE/out/docs"}, "are one folder, or one is inside the other"),
    ],
)
def test_what_cannot_be_planned_leaves_nothing(place, tmp_path, changes, said):
    changes = {name: str(tmp_path) + value[4:] if "HERE" in str(value) else value for name, value in changes.items()}
    given = {"sources": place[0], **place[1], "out": tmp_path / "out", **changes}
    with pytest.raises(quaere.BadInput, match=said):
        quaere.learn(given.pop("sources"), **given)
    assert not (tmp_path / "out").exists()


def test_other_arguments_and_other_folders_are_refused(told, place, tmp_path):
    corpus, given = place
    with pytest.raises(quaere.BadInput, match=r"was begun with minutes 30\.0"):
        quaere.learn(corpus, **given, minutes=20)
    other = {**given["settings"], "solver.learner.learning_rate": 0.5, "form.episodes": 3, "checkpoints.keep": 7}
    with pytest.raises(quaere.BadInput, match=r"other values of solver\.limits\.topk, \S+, form\.episodes and 1 more"):
        quaere.learn(corpus, **{**given, "settings": {**other, "solver.limits.topk": 2}})
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(quaere.BadInput, match="is not a folder of `quaere learn`"):
        quaere.learn(corpus, **{**given, "out": tmp_path})


def test_an_index_among_documents_is_refused(place, tmp_path):
    corpus, given = place
    quaere.Index.build(corpus, tmp_path / "index")
    with pytest.raises(quaere.BadInput, match="index is an index, and documents are needed here"):
        quaere.learn([tmp_path / "index", corpus], **{**given, "out": tmp_path / "out"})


def test_documents_that_are_too_few(place, tmp_path):
    (tmp_path / "docs").mkdir()
    given = {**place[1], "out": tmp_path / "out"}
    with pytest.raises(quaere.BadInput, match="docs"):  # empty
        quaere.learn(tmp_path / "docs", **given)
    (tmp_path / "docs/one.md").write_text("Halm was built by Orsolya Venn.")
    with pytest.raises(quaere.BadInput, match="one document is not enough"):
        quaere.learn(tmp_path / "docs", **given)
    (tmp_path / "docs/two.md").write_text("Oss was built by Marta Oleen.")  # the same call goes on
    stop_each(tmp_path / "docs", given, ["2 passages of 2 documents"])


def test_a_folder_with_no_more_than_a_half_written_plan_resumes(place, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".plan.json.partial-0123456789abcdef").write_text('{"sour')  # killed before it was renamed
    stop_each(place[0], {**place[1], "out": out}, ["indexing"])
    assert sorted(path.name for path in out.iterdir()) == ["plan.json", "seconds.json"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("docs/scan.xyz", "text", "found no document with text"),
        ("docs/empty.md", " ", "found no document with text"),
        ("docs", "text", "is not a kind of file that can be read"),
        ("rows.jsonl", "no JSON\n", "rows.jsonl"),
        ("questions.jsonl", '{"id": "q"}\n', "questions.jsonl, line 1"),
    ],
)
def test_files_that_cannot_be_read_are_refused_before_anything_is_written(place, tmp_path, name, text, said):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    given = {**place[1], "out": tmp_path / "out"}
    if name == "questions.jsonl":
        given["questions"] = path
    source = place[0] if name == "questions.jsonl" else tmp_path / name.partition("/")[0]
    with pytest.raises(quaere.BadInput, match=said):
        quaere.learn(source, **given)
    assert not given["out"].exists()


def test_what_the_machine_has_too_little_of(place, tmp_path, monkeypatch):
    from quaere.training import estimate

    given = {**place[1], "out": tmp_path / "out"}
    with monkeypatch.context() as patch:
        patch.setattr(learning_plan, "_MOST_ON_CPU", 1000)
        with pytest.raises(quaere.BadInput, match="no GPU was found") as caught:
            quaere.learn(place[0], **given, minutes=5.5, seed=3)
        machine, _, command = caught.value.hint.partition(": ")
        assert machine == "on a machine with a GPU, or with --trainer tinker"
        again = build_parser().parse_args(shlex.split(command)[1:])
        typed = {name: getattr(again, name) for name in ("model", "minutes", "questions", "recipe", "seed")}
        typed |= {"settings": read_assignments(again.assignments)}
        assert ask_for(again.sources, **typed) == ask_for(
            place[0], given["model"], given["questions"], settings=SMALL, minutes=5.5, recipe="search-r1", seed=3
        )
        assert again.out == given["out"] and "`quaere questions --checked`" in str(caught.value)
        patch.setattr("quaere.policies.catalogue.needs_guide", lambda model: True)
        with pytest.raises(quaere.BadInput, match="here work `quaere index`, `quaere ask`, and learning"):
            quaere.learn(place[0], **given)
    with monkeypatch.context() as patch:
        patch.setattr(estimate, "machine_bytes", lambda device: 1000.0)
        with pytest.raises(quaere.BadInput, match=r"GiB, and there are 0\.0 on .* CPU cores"):
            quaere.learn(place[0], **given)
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage(tmp_path)._replace(free=1000)
        patch.setattr(learning_plan.shutil, "disk_usage", lambda path: usage)
        with pytest.raises(quaere.BadInput, match="of the disk are free"):
            quaere.learn(place[0], **given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("recipe", ["drzero", "eve"])
def test_a_recipe_that_writes_its_own_questions_begins_with_the_checked_ones(village_paths, tmp_path, recipe):
    index, model = village_paths
    given = make_place((index, model, None), tmp_path, recipe=recipe)
    unanswerable = {"id": "Gorse#0:0-unanswerable", "question": "How old?", "answers": [], "kind": "unanswerable"}
    with given["questions"].open("a") as file:  # no proposer's curriculum takes it
        file.write(json.dumps({**unanswerable, "facts": 1, "searches": 1, "hops": 1, "evidence": []}) + "\n")
    settings = {**LOOP, "solver.limits": {**LOOP["solver.limits"], "sequence_tokens": 640}, "adapter.rank": 0}
    learned = quaere.learn(index, **given, recipe=recipe, settings=settings)
    alone = {**given, "recipe": recipe, "out": tmp_path / "alone", "settings": {**settings, "generation.given": ""}}
    stop_each(index, alone, ["0 questions to practise on but its own, 8 held back"])
    assert not (tmp_path / "alone/practice.jsonl").read_bytes()
    with quaere.Run.open(learned.out / "run") as run:
        assert run.config["generation"]["given"] == str(learned.out / "practice.jsonl")
        assert run.config["proposer"]["held_back"] == str(learned.out / "held.jsonl")
        assert {row.protocol for row in run.index(phase="solver")} == {f"{recipe}-solver"}
        assert any(has_hidden_answer(row.task_id) for row in run.index(phase="solver"))  # some are to be refused
    assert learned.after.settings["protocol"] == f"{recipe}-solver" and learned.gain.num == 8


def test_killed_while_it_measures_it_goes_on_from_its_answers(place, tmp_path):
    corpus, given = place
    settings = {**SMALL, "engine.mode": "fast", "engine.max_rows": 1}
    given = {**given, "out": tmp_path / "out", "settings": settings}
    stop_each(corpus, given, ["answering 3"])
    with quaere.Run.open(tmp_path / "out/before") as run:
        kept = [row.id for row in run.index()]
    parts = []

    def keep(*part):
        parts.append(part)
        if part[0] == "reinforcing":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        quaere.learn(corpus, **given, on_progress=keep)
    asked = quaere.Evaluation.read(tmp_path / "out/before.json").questions
    assert [score.id for score in asked][:3] == kept
    assert [part[1:3] for part in parts if part[0] == "answering"] == [
        (one + 1, len(asked) - 3) for one in range(len(asked) - 3)
    ]


# ------------------------------------------------------------------------------------------------------ steps and time


@pytest.fixture(scope="module")
def planned(place, tmp_path_factory):
    """A plan for a CPU: 8 questions x 8 attempts a step."""
    settings = {"engine.mode": "fast", "solver.batch": 8, "solver.attempts": 8}
    asked = ask_for(place[0], place[1]["model"], place[1]["questions"], settings=settings, minutes=0.6, device="cpu")
    return make_plan(asked, tmp_path_factory.mktemp("plan"))


@pytest.mark.parametrize(("left_s", "steps"), [(60.0, 49), (600.0, 80), (3.0, 4), (-20.0, 4)])
def test_steps_are_those_that_the_time_left_has_room_for(planned, left_s, steps):
    assert planned.machine.step_s == 1.5  # 3 turns of 96 tokens, 5 ms each with a tiny model
    assert planned.steps == 9  # in two fifths of 36 s
    fitted = fit_steps(planned, episode_s=0.01, left_s=left_s)
    assert fitted.machine.step_s == pytest.approx(64 * 0.01 * 1.9, abs=0.01)  # sampling, and learning from it
    assert fitted.steps == steps


def test_steps_of_a_larger_model_are_expected_to_take_longer(planned, tmp_path, monkeypatch):
    monkeypatch.setattr(learning_plan, "_CPU_WEIGHT_S", 1e-6)
    asked = ask_for(planned.sources[0], planned.model, planned.questions, settings=planned.settings, device="cpu")
    larger = make_plan(asked, tmp_path).machine
    assert larger.step_s == pytest.approx(288 * (0.005 + 1e-6 * larger.num_parameters), abs=0.1)


@pytest.mark.parametrize(("changes", "times"), [({"solver.attempts": 16}, 2), ({"solver.batch": 24}, 3)])
def test_a_step_takes_as_long_as_its_episodes(planned, tmp_path, changes, times):
    settings = {**planned.settings, **changes, "solver.steps": 7}
    asked = ask_for(planned.sources[0], planned.model, planned.questions, settings=settings, device="cpu")
    plan = make_plan(asked, tmp_path)
    assert plan.machine.step_s == pytest.approx(times * planned.machine.step_s, abs=0.2)
    assert plan.expected_s == 60 * 0.15 * plan.minutes + 7 * plan.machine.step_s


@pytest.mark.parametrize(
    ("mode", "minutes", "said"),
    [
        ("fast", 0.18, ("drafts in 0.18 minutes", "about")),
        ("deterministic", 0, ("however long they take", "more than")),
    ],
)
def test_a_deterministic_plan_says_that_no_time_limits_its_writer(planned, tmp_path, mode, minutes, said):
    settings = {**planned.settings, "engine.mode": mode}
    asked = ask_for(planned.sources[0], planned.model, settings=settings, minutes=0.6, device="cpu")
    plan = make_plan(asked, tmp_path)
    lines = dict(plan.describe())
    assert plan.writer_settings().minutes == minutes
    assert said[0] in lines["questions"] and lines["time"].startswith(said[1])


def test_what_a_proposer_samples_is_counted(planned):
    settings = {"proposer.steps": 2, "proposer.batch": 16, "proposer.attempts": 4, "generation.candidates": 250}
    settings |= {"solver.batch": 8, "solver.attempts": 8, "iterations": 3, "generation.attempts": 1}
    config = structs.replace(planned, recipe="drzero", settings=settings).config(planned.model)
    assert count_steps(config, 30) == 3 * (30 + (2 * 16 * (1 + 4) + 250 * (1 + 1)) / 64)
    assert count_steps(planned.config(planned.model), 30) == 30
    settings |= {"generation.candidates": 0, "proposer.questions": 5, "proposer.batch": 10}
    config = structs.replace(planned, recipe="drzero", settings=settings).config(planned.model)
    assert count_steps(config, 0) == 3 * (2 * 50 * (1 + 4) + 2 * 10 * (1 + 1)) / 64  # as many as documents


@pytest.fixture
def timed(place, tmp_path, monkeypatch):
    """A call whose steps its first evaluation decides, by a clock that goes on by 5 ms whenever it is looked at."""
    corpus, given = place
    settings = {name: value for name, value in SMALL.items() if name not in ("solver.steps", "engine.mode")}
    settings["solver.attempts"] = 3
    ticks = itertools.count()
    monkeypatch.setattr(learning_plan, "_CPU_EPISODES", 12)  # as in one step
    monkeypatch.setattr(learning, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 200))
    return corpus, {**given, "out": tmp_path / "out", "settings": settings, "minutes": 0.6}


def test_a_kill_after_the_last_answer_does_not_keep_the_planned_steps(timed, tmp_path):
    corpus, given = timed
    stop_each(corpus, given, ["answering 16", "reinforcing;"])
    assert json.loads((tmp_path / "out/plan.json").read_text())["steps"] == 80  # and not 28
    assert not (tmp_path / "out/answered.json").exists()


@pytest.mark.parametrize(
    ("num_at_once", "expected"),
    [
        (2, (16.0 - 9.0) / 4),  # two of six began with the model, and the second was answered at 9 s
        (3, (16.0 - 10.0) / 3),
        (4, (16.0 - 1.0) / 6),  # no second batch: all count, from when the model was loaded
    ],
)
def test_the_first_batch_does_not_count_towards_the_time_of_an_episode(num_at_once, expected):
    found = Answered().add(1.0, [8.0, 9.0, 10.0, 11.5, 13.0, 16.0], num_at_once)
    assert found.episode_s == pytest.approx(expected)
    again = found.add(20.0, [24.0], num_at_once)  # by a call that went on after a kill
    assert (again.num, again.seconds) == (found.num + 1, found.seconds + 4.0) and again.add(30.0, [], 2) == again


@pytest.mark.parametrize("fixed", [{"solver.steps": 9}, {"engine.mode": "deterministic"}])
def test_steps_that_were_asked_for_or_must_repeat_are_not_fitted(planned, fixed):
    plan = structs.replace(planned, settings={**planned.settings, **fixed})
    assert fit_steps(plan, episode_s=0.1, left_s=60.0) is plan
    said, fitted = (dict(one.describe())["reinforcement"] for one in (plan, planned))
    assert said.startswith("search-r1, at most 9 steps of ") and fitted.startswith("search-r1, about 9 steps of ")


def test_the_time_of_a_stage_is_stored_while_it_goes_on(place, tmp_path, monkeypatch):
    """By a clock that goes on by two seconds whenever it is looked at: a process that is killed stores nothing."""
    corpus, given = place
    given = {**given, "out": tmp_path / "out"}
    ticks, stored = itertools.count(), {}
    monkeypatch.setattr(learning, "time", SimpleNamespace(monotonic=lambda: 2 * next(ticks)))

    def look(doing, done, *_):
        path = given["out"] / "seconds.json"
        stored[doing, done] = json.loads(path.read_text()) if path.exists() else {}
        if doing == "answering" and done == 8:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        quaere.learn(corpus, **given, on_progress=look)
    spent = [found["before"] for (doing, _), found in stored.items() if doing == "answering" and "before" in found]
    assert len(set(spent)) > 2 and spent == sorted(spent)
    assert json.loads((given["out"] / "seconds.json").read_text())["before"] > spent[-1]


def test_the_steps_are_decided_once(timed, tmp_path, monkeypatch):
    later = itertools.count(1)
    corpus, given = timed
    stop_each(corpus, given, ["measuring"])
    assert json.loads((tmp_path / "out/plan.json").read_text())["steps"] == 28
    stop_each(corpus, given, ["80 steps of about "])
    stop_each(corpus, given, ["reinforcing;"])
    assert json.loads((tmp_path / "out/plan.json").read_text())["steps"] == 80
    monkeypatch.setattr(learning, "time", SimpleNamespace(monotonic=lambda: 1000 * next(later)))
    stop_each(corpus, given, ["reinforcing 1"])
    with quaere.Run.open(tmp_path / "out/run") as run:
        assert run.config["solver"]["steps"] == 80
