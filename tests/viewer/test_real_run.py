"""The small copy of a real run (`benchmarks/results/manuals-run`), and how `benchmarks/shrink_run.py` makes one."""

import re
import tarfile
from pathlib import Path

import pytest

from quaere.errors import BadInput
from quaere.evaluation.qa.scores import Evaluation, score_answering, score_episode, write_evaluation
from quaere.runs import Run
from quaere.runs.rows import EpisodeFilter
from viewing import add_episodes, make_episode, open_client, twin, write_eval, write_learning, write_run

ROOT = Path(__file__).parents[2]
COPY = ROOT / "benchmarks/results/manuals-run"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    home = tmp_path_factory.mktemp("real")
    with tarfile.open(COPY / "manuals.tar.xz") as archive:
        archive.extractall(home, filter="data")
    return home / "manuals"


@pytest.fixture
def shrink_run(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import shrink_run

    return shrink_run


def find_texts(run):
    """Ids of the episodes whose text is there."""
    stored = run._query("SELECT id FROM episodes WHERE length > 0")
    return [id for (id,) in stored]


def test_every_episode_with_its_text_reads_as_a_conversation(real):
    client, states = open_client(real / "run"), set()
    with Run.open(real / "run") as run:
        ids = find_texts(run)
    for id in ids:
        page = twin(client, f"episode?id={id.replace('#', '%23').replace('>', '%3E')}", run="run")
        states.add((page["shown"]["state"], page["shown"]["chips_are"]))
        for turn in page["turns"]:
            assert not re.search(r"</?(think|search|answer)>", turn["thought"])
            assert turn["thought"] or turn["kind"] in ("malformed", "answer", "abstained", "search")
        sources = [chip["text"] for chip in page["shown"]["chips"]] if page["shown"]["chips_are"] == "support" else []
        assert bool(page["cited"]) == bool(sources)
    assert len(ids) == 64 and {("answered", "support"), ("abstained", "seen")} <= states


def test_the_page_of_the_copy_shows_the_whole_run_and_opens_both_attempts(real):
    client = open_client(real)
    page = twin(client, "/run/run")
    head = page["glance"]["headline"]
    assert [round(100 * head[name]["mean"], 1) for name in ("before", "after", "gain")] == [64.8, 80.3, 15.5]
    assert (page["title"], head["best_step"], page["glance"]["num_lost"]) == ("manuals", 8, 13)
    assert [(row["kind"], row["after"]["num"]) for row in page["glance"]["kinds"]][:2] == [
        ("yes/no, 1 search", 4),
        ("name, 2 searches", 2),
    ]
    assert "before and after training (weights of step 8, the best by validation)" in client.get("/run/run").text
    assert (page["num_episodes"], page["num_searches"], page["glance"]["num_questions"]) == (10_112, 14_110, 1216)
    assert twin(client, "/run/run/map?of=practised")["stacks"] and twin(client, "/run/run/map")["num_learned"] == 60
    shown = page["glance"]["learned"] + page["glance"]["wrong"]
    assert len(shown) == 20
    for tried in (one[side] for one in shown for side in ("before", "after")):
        assert client.get(f"/run/{tried['run']}/episode", params={"id": tried["episode"]}).status_code == 200


def test_the_copy_of_a_run_names_no_path_and_is_small(real):
    for name in ("run", "before", "after"):
        with Run.open(real / name) as run:
            assert "/" not in "".join(str(value) for value in run.info.settings.values())
            assert not [row for row in run.rows(EpisodeFilter()) if row.model.startswith("/")]
    assert not [path for path in real.rglob("*.yaml") if re.search(r"(?<!\S)/", path.read_text(encoding="utf-8"))]
    assert "licences" in (COPY / "README.md").read_text(encoding="utf-8")
    assert sum(file.stat().st_size for file in COPY.iterdir()) < 1_000_000


def test_a_run_keeps_all_rows_and_the_texts_of_the_first_questions_of_its_first_and_last_step(shrink_run, tmp_path):
    with Run.open(write_run(tmp_path / "whole", num_steps=3, index="/home/me/index"), write=True) as run:
        for step in (1, 2, 3):
            add_episodes(run, step=step, longest=40)
            run.add_episode(make_episode(f"more{step}", "q2"), {"reward/total": 1.0}, step=step, phase="solver")
        shrink_run.shrink(run.path, tmp_path / "small", 1)
        kept = [f"s{n}-a{m}" for n in (1, 3) for m in range(3)]
        with Run.open(tmp_path / "small/whole") as small:
            assert small.rows(EpisodeFilter()) == run.rows(EpisodeFilter())
            assert find_texts(small) == kept
            assert [small.episode(id) for id in kept] == [run.episode(id) for id in kept]
            assert small.info.settings["index"] == "index"
            for step in (1, 2, 3):
                assert small.metrics_at(step) == pytest.approx(run.metrics_at(step), nan_ok=True)
            assert [event.kind for event in small.events()] == [event.kind for event in run.events()]
            with pytest.raises(BadInput, match="the text of this episode was left out"):
                small.episode("more1")
    reply = open_client(tmp_path / "small/whole").get("/run/whole/episode?id=more1")
    assert reply.status_code == 400 and "the text of this episode was left out" in reply.text


def test_a_learning_is_shrunk_with_its_measurements(shrink_run, tmp_path):
    write_learning(tmp_path / "whole/run")
    for name, answers in {"before": ["x"] * 12, "after": ["Orsolya Venn"] * 12}.items():
        with Run.open(write_eval(tmp_path / "whole" / name, answers)) as run:
            scores = [score_episode(episode, evidence=False) for episode in run.episodes()]
        found = Evaluation(name, "/home/me/form", {}, score_answering(scores), tuple(scores))
        write_evaluation(found, tmp_path / f"whole/{name}.json")
    shrink_run.shrink(tmp_path / "whole/run", tmp_path / "small", 1)
    whole, small = (twin(open_client(tmp_path / name / "run"), "/run/run")["glance"] for name in ("whole", "small"))
    assert small == whole and len(small["learned"]) == 10 and small["num_learned"] == 12
    assert '"model": "form"' in (tmp_path / "small/before.json").read_text(encoding="utf-8")
    with Run.open(tmp_path / "small/after") as run:
        assert len(find_texts(run)) == 10


@pytest.mark.parametrize(
    ("text", "short"),
    [("model: /data/models/form\n", "model: form\n"), ("a/b and/or 1/2", "a/b and/or 1/2"), ("/x", "/x")],
)
def test_paths_are_shortened_and_nothing_else(shrink_run, text, short):
    assert shrink_run.shorten(text) == short
