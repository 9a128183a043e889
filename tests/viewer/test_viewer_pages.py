"""Pages and their JSON twins: runs, one run, one step, several runs."""

import json
import math
import re
import tarfile
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.recipes.report_baselines import HARNESS
from quaere.recipes.score.harness import HarnessVersion, Versions
from quaere.runs import Run
from quaere.runs.checkpoints import save_checkpoint
from quaere.viewer import page_formats, run_list
from quaere.viewer.app import read_static
from quaere.viewer.run_folder import open_folder, read_signature
from viewed_reports import write_reports_run
from viewing import log_step, make_episode, open_client, twin, write_asked, write_eval, write_run

FIXTURE = Path(__file__).parents[1] / "fixtures/run-0.1.0.tar.xz"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "alpha")
    write_run(folder / "beta", num_steps=4, batch=16, model="other", ended="failed")
    with Run.create(folder / "asked", "ask", {"model": "tiny"}):
        pass
    (folder / "broken").mkdir()
    (folder / "broken" / "run.db").write_text("no database")
    (folder / "not-a-run").mkdir()
    return folder


@pytest.fixture(scope="module")
def client(runs):
    return open_client(runs)


# --------------------------------------------------------------------------------------------------------------- runs


def test_runs_are_listed_with_state_metrics_and_what_to_type(client, runs):
    listed = {card["name"]: card for card in twin(client, "/")["page"]["items"]}
    assert list(listed) == ["asked", "beta", "alpha", "broken"]  # newest first
    alpha, beta = listed["alpha"], listed["beta"]
    assert (alpha["recipe"], alpha["model"], alpha["state"]["name"], alpha["step"]) == ("drzero", "tiny", "done", 6)
    assert alpha["figures"] == pytest.approx({"reward/mean": 0.6, "policy/entropy": 1 / 6})  # passes/mean is NaN there
    assert alpha["trend_phase"] == "solver"  # the first three steps are the proposer's, whose rewards are another thing
    assert alpha["trend"]["steps"] == [4, 5, 6] and alpha["trend"]["values"] == pytest.approx([0.4, 0.5, 0.6])
    assert alpha["next"] == f"quaere export {runs.absolute()}/alpha --merge --out DIR"
    assert beta["state"] == {"name": "failed", "why": "the gradient is not finite "}
    assert beta["next"].startswith("quaere evolve --resume ")
    broken = listed["broken"]
    assert "cannot be read" in broken["problem"] and broken["num_episodes"] == broken["num_answered"] == 0


def test_the_page_of_runs_shows_the_same(client):
    page = client.get("/").text
    for text in ("alpha", "quaere evolve --resume", "the gradient is not finite", "mean reward", "cannot be read"):
        assert text in page
    assert '<path class="line s0" d="M' in page


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("text=OTHER", ["beta"]),
        ("state=done", ["alpha", "asked"]),
        ("text=drzero&state=failed", ["beta"]),
        ("text=nothing", []),
        ("text=&state=", ["alpha", "asked", "beta", "broken"]),
    ],
)
def test_runs_are_found_by_words_and_state(client, query, names):
    assert sorted(card["name"] for card in twin(client, f"/?{query}")["page"]["items"]) == names


def test_long_lists_have_pages(client, monkeypatch):
    monkeypatch.setattr(page_formats, "PAGE_SIZE", 2)
    first, second = (twin(client, f"/?page={number}")["page"] for number in (1, 2))
    assert (len(first["items"]), len(second["items"]), first["num_pages"]) == (2, 2, 2)
    assert twin(client, "/?page=99")["page"]["number"] == 2
    page = client.get("/?text=a").text
    assert 'rel="next"' in page and 'href="?text=a&amp;page=2"' in page


def test_a_run_is_read_again_only_when_it_was_written_to(tmp_path, monkeypatch):
    write_run(tmp_path / "alpha")
    client, read = open_client(tmp_path), []
    describe, complete = run_list._describe, run_list._complete
    monkeypatch.setattr(run_list, "_describe", lambda run, name: read.append("begun") or describe(run, name))
    monkeypatch.setattr(run_list, "_complete", lambda run, card: read.append("stands") or complete(run, card))
    twin(client, "/?text=nothing"), twin(client, "/evaluations")
    assert read == ["begun"]  # a run that is on no page is not read in full
    twin(client, "/"), twin(client, "/"), twin(client, "/?state=done")
    assert read == ["begun", "begun", "stands"]
    with Run.open(tmp_path / "alpha", write=True) as run:
        log_step(run, 7, 6)
        assert twin(client, "/")["page"]["items"][0]["step"] == 7
        assert twin(client, "/")["page"]["items"][0]["state"]["name"] == "running"
    assert twin(client, "/")["page"]["items"][0]["state"]["name"] != "running"


def test_an_empty_folder_says_what_writes_runs(tmp_path):
    assert "quaere evolve" in open_client(tmp_path).get("/").text


# ------------------------------------------------------------------------------------------------------------ one run


def test_a_run_has_a_timeline_curves_alarms_curriculum_and_settings(client):
    shown = twin(client, "/run/alpha")
    assert [(phase["phase"], phase["first_step"], phase["last_step"]) for phase in shown["phases"]] == [
        ("proposer", 1, 3),
        ("solver", 4, 6),
    ]
    assert [section["title"] for section in shown["sections"]] == [
        "Reward",
        "Difficulty of the questions",
        "Policy",
        "Other",
    ]
    (passes,) = shown["sections"][1]["charts"][0]["series"]
    assert passes == {"name": "passes/mean", "steps": [1, 2, 3, 4, 5, 6], "values": [0.3, None, 0.3, None, 0.3, None]}
    assert shown["events"][0]["kind"] == "entropy"
    assert shown["candidates"] == [{"iteration": 0, "num_kept": 2, "dropped": {"never solved": 2}}]
    assert shown["config"].startswith("model: tiny")
    page = client.get("/run/alpha").text
    for text in ("done after step 6", "Mean reward", "3 steps in a row", "never solved 2", "batch: 8", 'max="6"'):
        assert text in page


def test_the_slider_stands_where_the_address_says(client):
    assert twin(client, "/run/alpha?step=3")["step"] == 3
    assert twin(client, "/run/alpha?step=99")["step"] == twin(client, "/run/alpha")["step"] == 6
    assert 'value="3"' in client.get("/run/alpha?step=3").text


def test_a_run_that_was_not_trained_has_a_page_too(client):
    page = client.get("/run/asked").text
    assert "0 episodes" in page and "Health" not in page


def test_a_phase_of_one_step_is_no_range(tmp_path):
    write_run(tmp_path / "one", num_steps=1)
    write_run(tmp_path / "six")
    client = open_client(tmp_path)
    ranges = {name: client.get(f"/run/{name}").text.partition("Timeline")[2] for name in ("one", "six")}
    assert 'step/1">1</a></td>' in ranges["one"] and "→" not in ranges["one"]
    assert 'step/1">1</a> to <a' in ranges["six"] and "0.1 → 0.3" in ranges["six"]


def test_a_training_that_has_just_begun_has_no_step(tmp_path):
    with Run.create(tmp_path / "alpha", "evolve", {"model": "tiny", "preset": None}):
        page = open_client(tmp_path).get("/run/alpha").text
    assert "No step so far" in page
    assert '<th scope="row">model</th>' in page and "preset" not in page  # settings that nobody made


def test_the_harness_over_time_is_shown(tmp_path):
    path = write_run(tmp_path / "alpha")
    Versions(path).append(HarnessVersion(0, HARNESS, why="default"))
    Versions(path).append(HarnessVersion(4, HARNESS, why="kept", fault="the proposal was no JSON"))
    shown = twin(open_client(tmp_path), "/run/alpha")["harness"]
    assert [(change["step"], change["why"], change["fault"]) for change in shown] == [
        (0, "default", ""),
        (4, "kept", "the proposal was no JSON"),
    ]
    assert "the proposal was no JSON" in open_client(tmp_path).get("/run/alpha").text


def test_the_best_checkpoint_is_the_one_that_the_last_one_names(tmp_path):
    path = write_run(tmp_path / "alpha")
    for step, exact_match in ((2, 0.25), (4, 0.5)):  # each the best so far
        best = {"role": "solver", "step": step, "exact_match": exact_match, "num_questions": 64}
        save_checkpoint(path / "checkpoints", step, write=lambda made: (made / "weights").touch(), state={"best": best})
    client = open_client(tmp_path)
    shown = [(one["name"], one["best"]) for one in twin(client, "/run/alpha")["checkpoints"]]
    assert shown == [("step-000002", None), ("step-000004", 0.5)]
    assert "best, rated 0.5" in client.get("/run/alpha").text


def test_a_run_of_an_earlier_version_is_shown(tmp_path):
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    client = open_client(tmp_path / "old-run/run")
    shown = twin(client, "/run/run")
    assert shown["info"]["version"] == "0.1.0" and shown["num_episodes"] == 32
    assert "quaere evolve --resume" not in client.get("/run/run").text
    assert client.get("/run/run/step/1").status_code == 200


def test_a_step_has_all_its_metrics_and_alarms(client):
    shown = twin(client, "/run/alpha/step/4")
    assert shown["metrics"]["odd/thing"] == 4.0 and shown["metrics"]["passes/mean"] is None
    assert (shown["phase"], shown["before"], shown["after"]) == ("solver", 3, 5)
    assert [event["kind"] for event in shown["events"]] == ["entropy"]
    page = client.get("/run/alpha/step/4").text
    assert "/run/alpha/step/3" in page and "/run/alpha/step/5" in page and "odd/thing" in page
    assert twin(client, "/run/alpha/step/6")["after"] == 0


# ------------------------------------------------------------------------------------------------------- several runs


def test_runs_are_compared_by_settings_and_curves(client):
    shown = twin(client, "/compare?run=alpha&run=beta")
    assert shown["settings"] == [{"name": "solver.batch", "values": ["8", "16"]}]
    chart = shown["sections"][0]["charts"][0]
    assert chart["title"] == "reward/mean" and [len(series["steps"]) for series in chart["series"]] == [6, 4]
    page = client.get("/compare?run=alpha&run=beta").text
    assert "solver.batch" in page and 'class="line s1"' in page


def test_a_run_without_a_metric_keeps_its_colour(client):
    chart = twin(client, "/compare?run=asked&run=alpha")["sections"][0]["charts"][0]
    assert [(series["name"], len(series["steps"])) for series in chart["series"]] == [("alpha", 6), ("asked", 0)]


@pytest.mark.parametrize("query", ["", "run=alpha", "run=alpha&run=alpha", "&".join(f"run={n}" for n in range(11))])
def test_two_to_ten_runs_are_compared(client, query):
    reply = client.get(f"/json/compare?{query}")
    assert reply.status_code == 400 and "2 to 10" in reply.json()["error"]


def test_ten_runs_are_not_too_many(client):
    reply = client.get("/json/compare?" + "&".join(f"run={number}" for number in range(10)))
    assert reply.status_code == 404  # there are none of these names


# ------------------------------------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/run/alpah", 404, "did you mean alpha?"),
        ("/run/alpha/step/99", 404, "its last step is 6"),
        ("/run/alpha/step/x", 404, "there is no such page"),
        ("/nowhere", 404, "the list of runs is at /"),
        ("/?page=0", 400, "page"),
        ("/?page=many", 400, "page"),
        ("/?state=lost", 400, "lost"),
        ("/run/alpha?step=x", 400, "step"),
        ("/run/broken", 400, "cannot be read"),
        ("/?text=" + "a" * 9000, 400, "8192"),
        ("/static/pages.py", 404, "there is no such page"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(client, path, status, says):
    page, reply = client.get(path), client.get(f"/json{path}")
    assert page.status_code == reply.status_code == status
    assert says in page.text and says in json.dumps(reply.json(), ensure_ascii=False)


def test_nothing_but_reading_is_offered(client):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/run/alpha").status_code == 405


# ----------------------------------------------------------------------------------------------------- what is opened


def test_a_run_or_a_folder_is_named(runs, monkeypatch):
    assert open_folder(str(runs / "alpha")).only == "alpha"
    assert open_folder("alpha", str(runs)).only == "alpha"
    assert open_folder(str(runs)).only == "" and open_folder(None, str(runs)).only == ""
    monkeypatch.chdir(runs / "alpha")
    assert open_folder(".").only == "alpha"
    assert list(open_folder(".").paths()) == ["alpha"]


def test_hidden_folders_and_unprintable_names_are_no_runs(tmp_path):
    for name in ("alpha", ".alpha", "be\nta"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.db").touch()
    assert list(open_folder(str(tmp_path)).paths()) == ["alpha"]


def test_what_is_neither_is_said(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="no folder of runs"):
        open_folder(None)
    assert main(["view", "alpah", "--runs", str(runs)]) == 2
    assert "did you mean alpha?" in capsys.readouterr().err


def test_reading_does_not_look_like_writing(runs):
    path = runs / "alpha"
    before = read_signature(path)
    with Run.open(path) as run:
        assert run.last_step() == 6 and read_signature(path) == before
    assert read_signature(path) == before


# ----------------------------------------------------------------------------------------------- bounds and small words


def test_the_trend_is_of_the_last_phase_while_no_solver_has_been_rewarded(tmp_path):
    with Run.create(tmp_path / "alpha", "evolve") as run:
        for step in (1, 2, 3):
            run.log_metrics(step, {"run/phase": 0.0 if step < 2 else 3.0, "reward/mean": float(step)})
    with Run.create(tmp_path / "beta", "evolve") as run:
        for step in (1, 2):
            run.log_metrics(step, {"reward/mean": float(step)})
    cards = {card["name"]: card for card in twin(open_client(tmp_path), "/")["page"]["items"]}
    assert (cards["alpha"]["trend_phase"], cards["alpha"]["trend"]["values"]) == ("reports", [2.0, 3.0])
    assert (cards["beta"]["trend_phase"], cards["beta"]["trend"]["values"]) == ("", [1.0, 2.0])


@pytest.mark.parametrize("name", ["x/{}", "reward/{}"])
def test_a_page_draws_so_many_metrics_and_says_how_many_are_left_out(tmp_path, name):
    for run_name in ("alpha", "beta"):
        with Run.create(tmp_path / run_name, "evolve") as run:
            run.log_metrics(1, {"policy/entropy": 1.0, **{name.format(number): 1.0 for number in range(1499)}})
    client = open_client(tmp_path)
    for address, num_shown in (("/run/alpha", 300), ("/compare?run=alpha&run=beta", 300), ("/run/alpha/step/1", 1000)):
        page, found = client.get(address).text, twin(client, address)
        shown = found.get("metrics") or [
            series["name"] for group in found["sections"] for chart in group["charts"] for series in chart["series"]
        ]
        assert len(shown) == num_shown * (2 if "compare" in address else 1)
        assert f"{1500 - num_shown} more metrics are not" in page
        assert name.format(999) not in page  # beyond the bound in the order of numbers and of letters
    assert "more metric" not in open_client(_write_small(tmp_path / "small")).get("/run/one").text


def _write_small(folder):
    write_run(folder / "one", num_steps=1)
    with Run.open(folder / "one", write=True) as run:
        run.add_episodes([make_episode("s1-a0", "c0")], [{"reward/total": 1.0}], step=1, phase="solver")
    return folder


def test_one_thing_is_not_called_things(tmp_path):
    """On no page that the list leads to, where there is one of everything."""
    write_eval(_write_small(tmp_path) / "eval", ["Orsolya Venn"])
    write_asked(tmp_path / "ask", ["Orsolya Venn"])
    write_reports_run(tmp_path / "score")
    client, seen, found = open_client(tmp_path), [], []
    addresses = ["/", "/evaluations"]
    while addresses:
        address = addresses.pop()
        if address in seen or address.startswith(("/static", "/json")):
            continue
        seen.append(address)
        page = client.get(address).text
        text = re.sub(r"<[^>]*>", "", page)  # what only narrow screens show is read too
        found += [(address, words) for words in re.findall(r"(?<![\w.,/#-])1 [a-z]{3,}s\b", text)]
        addresses += [unescape(link) for link in re.findall(r'href="(/[^"]*)"', page)]
    assert found == []
    assert {urlsplit(address).path.rpartition("/")[2] for address in seen} > {"questions", "group", "episode", "report"}


def test_an_iteration_that_is_no_number_is_none(tmp_path):
    with Run.create(tmp_path / "alpha", "evolve") as run:
        run.log_metrics(1, {"run/iteration": math.inf, "run/phase": math.inf, "reward/mean": 1.0})
    assert twin(open_client(tmp_path), "/run/alpha")["phases"][0]["iteration"] is None


def test_the_style_of_an_answer_is_not_that_of_a_kind_of_turn():
    """`kind answer` is a label in the transcript; only the paragraph of the page Ask is large."""
    rules = [rule.partition("{")[0] for rule in read_static("viewer.css").decode().splitlines() if "{" in rule]
    named = [selector.strip() for rule in rules for selector in rule.split(",")]
    assert "p.answer" in named and ".answer" not in named
