"""`quaere.learn` with a trainer: it reinforces, and what it cannot do is said before anything is written."""

import pytest

import quaere
from described_trainer import described_server
from learning_runs import SMALL, Reader, make_place, write_pages
from quaere.api import learning_plan
from quaere.dialects.notes import find_role, role_policy
from quaere.rollout import policy
from quaere.rollout.policy import ChatPolicy
from quaere.training import remote_actors, run_setup
from quaere.training.actors import open_actors

SETTINGS = {**SMALL, "adapter.rank": 4, "engine.mode": "fast"}


@pytest.fixture(autouse=True)
def trainers(monkeypatch):
    """The configs with which a trainer was opened. What it computes is computed here, without the SDK."""
    opened = []

    def open_here(config, roles, note):
        opened.append(config)
        return open_actors(config, roles, note)

    monkeypatch.setattr(run_setup, "check_sdk", lambda: None)
    monkeypatch.setattr(run_setup, "sdk_version", lambda: (0, 25))
    monkeypatch.setattr(run_setup, "open_remote_actors", open_here)
    return opened


@pytest.fixture(autouse=True)
def sampled(monkeypatch):
    """The folders of the weights that the trainer sampled from, None for its base; no model is opened here for that."""
    folders, open_here = [], policy.open_policy

    def open_there(config, folder, note):
        assert config.trainer.kind == "tinker"
        folders.append(folder)
        engine = {"device": "cpu", "max_rows": 8}
        return (
            role_policy(find_role(folder.parents[2], "solver"), **engine)
            if folder
            else open_here(config.model, **engine)
        )

    monkeypatch.setattr(remote_actors, "open_remote_policy", open_there)
    monkeypatch.setattr(policy, "open_policy", lambda model, **engine: pytest.fail("a model is opened here"))
    return folders


@pytest.fixture
def server():
    with described_server(["grad_clip_norm"]) as url:
        yield url


def stop(step, *_):
    if step == "reinforcing":
        raise ZeroDivisionError


def stop_measuring(line):
    if line.startswith("measuring"):
        raise ZeroDivisionError


def test_the_trainer_reinforces_and_may_move(weighing_paths, tmp_path, trainers, sampled, server):
    corpus = weighing_paths[0].parent / "corpus.jsonl"
    given = make_place(weighing_paths, tmp_path) | {"settings": SETTINGS, "trainer": "tinker"}
    with described_server(["grad_clip_norm"]) as first, pytest.raises(ZeroDivisionError):
        quaere.learn(corpus, **given, trainer_url=first, on_progress=stop)
    learned = quaere.learn(corpus, **given, trainer_url=server)
    assert [(one.trainer.kind, one.trainer.url) for one in trainers] == [("tinker", first), ("tinker", server)]
    assert learned.gain.num == 8 and "reinforcement" in learned.seconds
    assert dict(learned.plan.describe())["time"].endswith(f", the model on {server}")
    base, reinforced = sampled  # before and after
    assert base is None and reinforced.is_relative_to(learned.out / "run/checkpoints") and reinforced.name == "solver"
    with pytest.raises(quaere.BadInput, match="an update with the agent"):
        quaere.learn(corpus, **given, trainer_url=server, update=True)


def test_the_trainer_writes_the_questions(weighing_paths, tmp_path, server, monkeypatch):
    given = make_place(weighing_paths, tmp_path) | {"settings": {**SETTINGS, "writer.minutes": 0}, "trainer": "tinker"}
    del given["questions"]
    monkeypatch.setattr(remote_actors, "open_remote_policy", lambda config, folder, note: ChatPolicy(Reader()))
    with pytest.raises(ZeroDivisionError):
        quaere.learn(write_pages(tmp_path / "pages"), **given, trainer_url=server, on_note=stop_measuring)
    assert (tmp_path / "out/questions.jsonl").read_text().count("Who built") > 40


def test_what_a_trainer_cannot_do_is_said_first(weighing_paths, tmp_path, server, monkeypatch):
    corpus = weighing_paths[0].parent / "corpus.jsonl"
    given = make_place(weighing_paths, tmp_path, taught=False) | {"settings": SETTINGS, "trainer_url": server}
    with pytest.raises(quaere.BadInput, match="--trainer-url is the URL of a Tinker server"):
        quaere.learn(corpus, **given)
    with pytest.raises(quaere.BadInput, match="a model that was taught the form of search-r1") as caught:
        quaere.learn(corpus, **given, trainer="tinker")
    assert "quaere trainer start skyrl --model WARM" in caught.value.hint
    with pytest.raises(quaere.BadInput, match="all weights"):
        quaere.learn(corpus, **{**given, "settings": SMALL}, trainer="tinker")
    assert not (tmp_path / "out").exists()


def test_a_large_model_needs_no_gpu_here(weighing_paths, tmp_path, server, monkeypatch):
    given = make_place(weighing_paths, tmp_path) | {"settings": SETTINGS}
    corpus = weighing_paths[0].parent / "corpus.jsonl"
    monkeypatch.setattr(learning_plan, "_MOST_ON_CPU", 1000)
    asked = learning_plan.Asked(sources=(str(corpus),), model=str(given["model"]), settings=SETTINGS, device="cpu")
    with pytest.raises(quaere.BadInput, match="no GPU was found"):
        learning_plan.make_plan(asked, tmp_path / "out")
    remote = learning_plan.structs.replace(asked, trainer="tinker", trainer_url=server)
    plan = learning_plan.make_plan(remote, tmp_path / "out")
    assert (
        plan.machine.needed_gib == 0 and plan.preset == "single-gpu" and learning_plan.fit_steps(plan, 1.0, 1e6) is plan
    )
