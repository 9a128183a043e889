"""Going on with a run that was stopped, as far as nothing is trained: what is refused, remembered and told."""

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import structs

from quaere.api.evolution import ConfigOptions, create_store, evolve, open_stopped, resume, train_to_end
from quaere.errors import BadInput, ExtraMissing, TrainingStopped
from quaere.recipes.registry import find_recipe
from quaere.rollout.question_files import read_questions
from quaere.runs import Run, RunState
from village_runs import SMALL


@pytest.fixture
def options(village_paths):
    index, model = map(str, village_paths)
    return ConfigOptions(model=model, index=index, settings=SMALL)


@pytest.fixture
def stopped(options, tmp_path):
    recipe = find_recipe("drzero")
    create_store(recipe, options.load(recipe), out=tmp_path / "run", runs=None, writers=()).close()
    return tmp_path / "run"


def test_a_run_is_opened_as_it_was(stopped, options):
    found = open_stopped(stopped, ConfigOptions(), recipe="drzero")
    found.store.close()
    assert (found.recipe.name, found.writers) == ("drzero", ())
    assert found.config == options.load(found.recipe)
    assert (found.store.info.settings["model"], found.store.info.settings["recipe"]) == (options.model, "drzero")


def test_a_changed_setting_is_refused_unless_forced_and_then_written_down(stopped):
    changed = ConfigOptions(assignments=("solver.steps=9",))
    with pytest.raises(BadInput, match=r"the config has changed: solver\.steps: 2 -> 9"):
        open_stopped(stopped, changed)
    open_stopped(stopped, changed, force=True).store.close()
    again = open_stopped(stopped, ConfigOptions())
    again.store.close()
    assert again.config.solver.steps == 9


@pytest.mark.parametrize(
    ("given", "more", "said"),
    [
        ({"preset": "demo"}, {}, "--resume uses the run's own config"),
        ({"file": "mine.yaml"}, {}, "--resume uses the run's own config"),
        ({}, {"recipe": "eve"}, "is a run of drzero, not of eve"),
        ({"assignments": ("generation.given=mine.jsonl",)}, {"force": True}, "generation.given of a run cannot be"),
        ({"assignments": ("proposer.held_back=mine.jsonl",)}, {"force": True}, "proposer.held_back of a run cannot be"),
        ({"assignments": ("adapter.rank=8",)}, {"force": True}, r"adapter\.rank of a run cannot be .*: 0 -> 8"),
        ({"assignments": ("adapter.alpha=8",)}, {"force": True}, r"adapter\.alpha of a run cannot be changed"),
        ({"trainer": "tinker"}, {"force": True}, r"trainer\.kind of a run .*: local -> tinker"),
        ({"assignments": ("solver.limits.max_turns=1",)}, {"force": True}, "max_turns must be at least 2"),
        ({}, {"writers": ("slate",)}, "unknown writer slate"),
    ],
)
def test_what_cannot_be_gone_on_with_is_refused(stopped, given, more, said):
    before = (stopped / "config.yaml").read_bytes()
    with pytest.raises(BadInput, match=said):
        open_stopped(stopped, ConfigOptions(**given), **more)
    Run.open(stopped, write=True).close()  # nothing holds it
    assert (stopped / "config.yaml").read_bytes() == before


@pytest.mark.parametrize(("recipe", "name"), [("score", "evaluator.weights=own"), ("report-grpo", "judge=model")])
def test_a_role_whose_weights_no_checkpoint_has_is_refused(village_paths, tmp_path, recipe, name):
    index, model = map(str, village_paths)
    (tmp_path / "open.jsonl").write_text('{"question": "What is known about Halm?"}\n', encoding="utf-8")
    options = ConfigOptions(model=model, index=index, questions=str(tmp_path / "open.jsonl"))
    found = find_recipe(recipe)
    create_store(found, options.load(found), out=tmp_path / "run", runs=None, writers=()).close()
    with pytest.raises(BadInput, match=f"^{name.partition('=')[0]} of a run cannot be changed"):
        open_stopped(tmp_path / "run", ConfigOptions(assignments=(name,)), force=True)


def test_a_run_goes_on_from_another_directory_and_by_a_relative_name(village_paths, tmp_path, monkeypatch):
    index, model = village_paths
    (tmp_path / "index").symlink_to(index)
    (tmp_path / "model").symlink_to(model)
    monkeypatch.chdir(tmp_path)
    recipe, options = find_recipe("drzero"), ConfigOptions(model="model", index="index", settings=SMALL)
    create_store(recipe, options.load(recipe), out="run", runs=None, writers=()).close()
    open_stopped(tmp_path / "run", ConfigOptions(model="model", index="./index")).store.close()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    found = open_stopped(tmp_path / "run", ConfigOptions())
    found.store.close()
    assert (found.config.model, found.config.index) == (str(model.resolve()), str(index.resolve()))
    assert found.store.info.settings["model"] == found.config.model


@pytest.mark.parametrize("kind", ["record:study.warc.gz@http://127.0.0.1:9", "replay:study.warc.gz"])
def test_files_that_a_run_reads_again_are_found_from_another_directory(village_paths, tmp_path, monkeypatch, kind):
    index, model = map(str, village_paths)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.warc.gz").touch()
    recipe, options = find_recipe("eve"), ConfigOptions(model=model, index=index, search=kind, settings=SMALL)
    loaded = options.load(recipe)
    assert loaded.search_url == kind.replace("study", f"{tmp_path}/study")


def test_a_run_whose_index_is_gone_is_not_told_to_make_another(stopped, village_paths, monkeypatch, tmp_path):
    text = (stopped / "config.yaml").read_text(encoding="utf-8").replace(str(village_paths[0]), "index")
    (stopped / "config.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="the index of the run is not here: index") as caught:
        open_stopped(stopped, ConfigOptions())
    assert caught.value.hint.startswith(f"quaere evolve --resume {stopped} --index DIR --force")
    open_stopped(stopped, ConfigOptions(index=str(village_paths[0])), force=True).store.close()


def test_a_run_that_began_with_relative_names_still_goes_on_where_it_began(stopped, village_paths, monkeypatch):
    _index, model = village_paths
    monkeypatch.chdir(model.parent)
    text = (stopped / "config.yaml").read_text(encoding="utf-8").replace(str(model), model.name)
    assert f"model: {model.name}\n" in text
    (stopped / "config.yaml").write_text(text, encoding="utf-8")
    open_stopped(stopped, ConfigOptions()).store.close()
    assert f"model: {model}\n" in (stopped / "config.yaml").read_text(encoding="utf-8")


def test_settings_of_a_dialect_that_is_replaced_are_left_behind(village_paths, tmp_path):
    index, model = map(str, village_paths)
    (tmp_path / "q.jsonl").write_text('{"question": "Who built Halm?", "answers": ["Venn"]}\n', encoding="utf-8")
    recipe, options = find_recipe("evalact"), ConfigOptions(model=model, index=index, questions=f"{tmp_path}/q.jsonl")
    create_store(recipe, options.load(recipe), out=tmp_path / "run", runs=None, writers=()).close()
    assert "pcar" in (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
    changed = ConfigOptions(assignments=("solver.dialect=search-r1",))
    open_stopped(tmp_path / "run", changed, force=True).store.close()
    assert "pcar" not in (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")


def test_other_documents_and_other_kinds_of_runs_are_refused(stopped, tmp_path):
    with Run.open(stopped, write=True) as run:
        run.change_settings({"index_fingerprint": "before"})
    with pytest.raises(BadInput, match="holds other documents than when the run began"):
        open_stopped(stopped, ConfigOptions())
    open_stopped(stopped, ConfigOptions(), force=True).store.close()
    Run.create(tmp_path / "ask-1", "ask").close()
    with pytest.raises(BadInput, match="is a run of `quaere ask`"):
        open_stopped(tmp_path / "ask-1", ConfigOptions())


def test_writers_that_are_added_are_remembered(stopped, monkeypatch):
    monkeypatch.setattr("quaere.api.evolution.check_writers", lambda names: None)
    for added in (("tensorboard",), ("wandb", "tensorboard", "wandb"), ()):
        open_stopped(stopped, ConfigOptions(), writers=added).store.close()
    found = open_stopped(stopped, ConfigOptions())
    found.store.close()
    assert found.writers == ("tensorboard", "wandb")


# ------------------------------------------------------------------------------------------------------------ training


class Told:
    """A reporter that keeps what it is told."""

    def __init__(self):
        self.notes, self.closed = [], False

    def note(self, line):
        self.notes.append(line)

    def close(self):
        self.closed = True


async def go_on(stopped, train, **options):
    """What was told, and how the run ended, if it is trained like this."""
    found, told = open_stopped(stopped, ConfigOptions()), Told()
    recipe = structs.replace(found.recipe, train=train)
    try:
        await train_to_end(recipe, found.config, found.store, told, **options)
    finally:
        assert told.closed
        told.state = Run.open(stopped).state()
    return told


async def nothing(config, store, told):
    """Trains nothing."""
    assert store.state().name == "running"
    store.log_metrics(1, {"run/iteration": 0.0})


async def test_a_run_that_learned_nothing_has_failed_until_it_is_gone_on_with(stopped, monkeypatch):
    with pytest.raises(TrainingStopped, match="nothing was learned"):
        await go_on(stopped, nothing)
    assert Run.open(stopped).state().name == "failed"
    monkeypatch.setattr("quaere.api.evolution.check_learned", lambda *_, **__: None)
    assert (await go_on(stopped, nothing)).state == RunState("done")


def test_a_run_goes_on_without_the_files_of_questions_that_it_began_with(village_paths, tmp_path, monkeypatch):
    monkeypatch.setattr("quaere.api.evolution.check_learned", lambda *_, **__: None)
    monkeypatch.chdir(tmp_path)
    index, model = map(str, village_paths)
    evidence = [{"doc_id": "Halm", "start": 0, "end": 12, "text": "Halm is old."}]
    named = {"held.jsonl": {"id": "h1", "question": "How old is Halm?", "answers": ["old"], "evidence": evidence}}
    named |= {"prompts.jsonl": {"question": "What is known about Halm?"}}
    for name, row in named.items():
        Path(name).write_text(json.dumps(row), encoding="utf-8")
    before = [read_questions(name) for name in named]
    settings = {**SMALL, "prompt_source": "questions", "prompt_questions": "prompts.jsonl"}
    settings |= {"proposer.held_back": "held.jsonl"}
    options, recipe = ConfigOptions(model=model, index=index, settings=settings), find_recipe("eve")
    create_store(recipe, options.load(recipe), out=tmp_path / "run", runs=None, writers=()).close()
    for name in named:
        Path(name).unlink()
    seen = []

    async def train(config, store, told):
        seen.extend([config.proposer.held_back, config.prompt_questions])

    asyncio.run(go_on(tmp_path / "run", train))
    assert [read_questions(file) for file in seen] == before
    stored = (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
    assert "held_back: held.jsonl" in stored and "prompt_questions: prompts.jsonl" in stored


def test_a_run_without_copies_may_be_told_where_its_questions_are_now(village_paths, tmp_path):
    """Runs of earlier versions kept the path alone."""
    index, model = map(str, village_paths)
    was, now = tmp_path / "was here.jsonl", tmp_path / "is here.jsonl"
    was.write_text('{"id": "h1", "question": "How old is Halm?", "gold_ids": ["Halm"]}\n', encoding="utf-8")
    options = ConfigOptions(model=model, index=index, settings={**SMALL, "proposer.held_back": str(was)})
    recipe, run = find_recipe("drzero"), tmp_path / "run"
    create_store(recipe, options.load(recipe), out=run, runs=None, writers=()).close()
    (run / "held_back.jsonl").unlink()
    was.rename(now)
    with pytest.raises(BadInput, match="was here"):
        open_stopped(run, ConfigOptions())
    found = open_stopped(run, ConfigOptions(settings={"proposer.held_back": str(now)}), force=True)
    found.store.close()
    assert found.plannable.proposer.held_back == str(now)


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("then", ["stopped; the same command goes on", ""])
async def test_a_run_that_is_interrupted_says_what_its_caller_says(stopped, error, then):
    async def interrupted(config, store, told):
        raise error

    told = Told()
    found = open_stopped(stopped, ConfigOptions())
    recipe = structs.replace(found.recipe, train=interrupted)
    with pytest.raises(error):
        await train_to_end(recipe, found.config, found.store, told, then=then)
    assert told.notes == [f"run {stopped}", *filter(None, [then])]
    assert told.closed and Run.open(stopped).state() == RunState("stopped")


async def test_a_writer_that_is_no_longer_installed_is_said_and_left_out(stopped, monkeypatch):
    missing = {"wandb": ExtraMissing("wandb is not installed", extra="wandb")}
    monkeypatch.setattr("quaere.api.evolution.find_missing", lambda names: missing)
    monkeypatch.setattr("quaere.api.evolution.check_learned", lambda *_, **__: None)
    told = await go_on(stopped, nothing, remembered=("wandb",))
    assert told.notes[1].startswith("nothing is written to wandb, to which the run began to write: wandb is not")
    assert told.notes[-1] == f"done; look at it with: quaere runs show {stopped}"
    assert told.state == RunState("done")


@pytest.fixture
def trained(monkeypatch):
    """Let every recipe train nothing; returns the configs it was to train with."""
    configs = []

    async def train(config, store, told):
        configs.append(config)

    monkeypatch.setattr("quaere.api.evolution.check_learned", lambda *_, **__: None)
    monkeypatch.setattr(
        "quaere.api.evolution.find_recipe", lambda name: structs.replace(find_recipe(name), train=train)
    )
    return configs


def test_a_solver_is_trained_in_the_dialect_that_is_asked_for(village_paths, trained, tmp_path):
    index, model = village_paths
    given = {"index": index, "model": model, "settings": SMALL, "out": tmp_path / "run"}
    run = evolve("drzero", dialect="search-r1", **given)
    assert trained[0].solver.dialect == run.config["solver"]["dialect"] == "search-r1"


def test_a_resumed_run_writes_to_the_writers_that_it_began_with(stopped, trained, monkeypatch):
    with Run.open(stopped, write=True) as run:
        run.change_settings({"writers": ["wandb"]})
    missing = ExtraMissing("wandb is not installed", extra="wandb")
    monkeypatch.setattr("quaere.api.evolution.find_missing", lambda names: dict.fromkeys(names, missing))
    notes = []
    resume(stopped, on_note=notes.append)
    assert len(trained) == 1
    assert notes[1].startswith("nothing is written to wandb, to which the run began to write")


def test_a_run_that_cannot_be_written_is_let_go_of(stopped, monkeypatch):
    def refuse(store, text):
        raise BadInput("cannot write to the run: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "replace_config", refuse)
        with pytest.raises(BadInput, match="No space left") as caught:  # it is kept, as in a notebook
            open_stopped(stopped, ConfigOptions(assignments=("solver.steps=9",)), force=True)
    open_stopped(stopped, ConfigOptions()).store.close()
    assert caught.value
