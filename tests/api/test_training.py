"""`quaere.evolve`, `quaere.Run` and `quaere.export` on the village."""

import asyncio

import pytest

import quaere
from quaere.runs import Run as Store
from village_runs import SMALL


@pytest.fixture(scope="module")
def place(village_paths, tmp_path_factory):
    """A run that was trained inside a running event loop, and the steps it told of."""
    root = tmp_path_factory.mktemp("training")
    index, model = village_paths
    steps, notes = [], []

    async def cell():
        opened = quaere.Index.open(index)
        told = {"on_step": steps.append, "on_note": notes.append}
        return quaere.evolve("drzero", index=opened, model=model, settings=SMALL, out=root / "run", **told)

    return asyncio.run(cell()), steps, notes


def test_a_run_is_trained_and_can_be_read(place, village_paths):
    run, steps, notes = place
    assert [step.phase for step in steps] == ["proposer"] * 2 + ["generation"] * 2 + ["solver"] * 2
    assert str(steps[0]).startswith("proposer 1/2 · iteration 1 · reward ") and notes[0] == f"run {run.path}"
    assert [metric.step for metric in run.metrics("reward/mean")] == [1, 2, 5, 6]
    assert "reward/mean" in run.metric_names() and run.state().name == "done"
    assert run.config["solver"]["steps"] == 2 and run.config["index"] == str(village_paths[0])
    assert len(list(run.episodes(phase="solver"))) == len(run.index(phase="solver")) > 0
    assert run.curriculum() == Store.open(run.path).curriculum()
    assert repr(run) == f"<Run {run.path}: evolve>"


def test_a_run_is_found_by_its_name_or_directory(place, monkeypatch):
    run = place[0]
    monkeypatch.setenv("QUAERE_RUNS", str(run.path.parent))
    with quaere.Run.open("run") as named:
        assert named.path == quaere.Run.open(run.path).path == run.path
    with pytest.raises(quaere.BadInput, match="no run nun"):
        quaere.Run.open("nun")


def test_its_best_solver_can_be_asked_and_exported(place, village_paths, tmp_path):
    run, index = place[0], village_paths[0]
    with quaere.Agent(run, index) as agent:
        mine = agent.ask("Who built Halm?")
    folder = quaere.export(run, tmp_path / "solver")
    with quaere.Agent(folder, index) as agent:
        again = agent.ask("Who built Halm?")
    assert again.text == mine.text and agent.protocol.style == "brief"
    assert again.episode.token_ids == mine.episode.token_ids
    with pytest.raises(quaere.BadInput, match="is an export of quaere already"):
        quaere.export(str(run.path), folder)
    with pytest.raises(quaere.BadInput, match="step 99"):
        quaere.export(run, tmp_path / "other", checkpoint=99)


def test_a_run_goes_on_where_it_stopped(village_paths, tmp_path):
    index, model = village_paths
    given = {"index": index, "model": model, "settings": SMALL, "out": tmp_path / "run"}
    seen, notes = [], []

    def stop_at_second(step):
        seen.append(step.step)
        if step.step == 2:
            raise ZeroDivisionError("enough")

    with pytest.raises(ZeroDivisionError):
        quaere.evolve("drzero", **given, on_step=stop_at_second)
    with quaere.Run.open(tmp_path / "run") as run:
        assert run.state().name == "failed"
        with pytest.raises(quaere.BadInput, match=r"solver\.steps: 2 -> 3"):
            run.resume(settings={"solver.steps": 3})
        told = {"on_step": lambda step: seen.append(step.step), "on_note": notes.append}
        done = run.resume(settings={"solver.steps": 3}, force=True, **told)
    assert notes[0] == f"run {tmp_path / 'run'}" and notes[-1].startswith("done")
    assert seen[0] == 1 and seen[-1] == 7 and done.state().name == "done" and done.config["solver"]["steps"] == 3


def test_a_run_searches_with_a_function(village_paths, tmp_path):
    index, model = village_paths
    opened, asked = quaere.Index.open(index), []

    def search(query):
        asked.append(query)
        return [{"text": hit.passage.text, "title": hit.passage.title} for hit in opened.search(query)]

    def stop_at_second(step):
        if step.step == 2:
            raise ZeroDivisionError("enough")

    given = {"index": index, "model": model, "settings": SMALL, "out": tmp_path / "run"}
    with pytest.raises(ZeroDivisionError):
        quaere.evolve("drzero", **given, search=search, on_step=stop_at_second)
    num_asked = len(asked)
    with quaere.Run.open(tmp_path / "run") as run:
        with pytest.raises(quaere.BadInput, match="began with a search function"):
            run.resume()
        assert run.resume(search=search).state().name == "done"
        results = [result for episode in run.episodes() for turn in episode.turns for result in turn.results]
    found = [hit.passage.id for result in results for hit in result.hits]
    assert len(asked) > num_asked > 0 and found and all(name.startswith("text-") for name in found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recipe": "drzro"}, "no recipe drzro"),
        ({"preset": "huge"}, "unknown preset 'huge'"),
        ({"settings": {"solver.stepps": 3}}, "did you mean solver.steps?"),
        ({"settings": {"solver.steps": "three"}}, "solver.steps must be a whole number"),
        ({"questions": "mine.jsonl"}, "writes its own questions"),
        ({"index": "nowhere"}, "nowhere"),
        ({"writers": ["slate"]}, "unknown writer slate"),
    ],
)
def test_bad_input_leaves_no_run(village_paths, tmp_path, options, said):
    index, model = village_paths
    given = {"recipe": "drzero", "index": index, "model": model, "settings": SMALL, "out": tmp_path / "run", **options}
    with pytest.raises(quaere.QuaereError, match=said):
        quaere.evolve(given.pop("recipe"), **given)
    assert list(tmp_path.iterdir()) == []
