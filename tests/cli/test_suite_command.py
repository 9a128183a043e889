"""`quaere eval SUITE.yaml`: every method with every model on every set, continued after a stop, in tables."""

import csv
import json
import shutil
import signal

import pytest
from test_export_command import make_base, make_run, write_models
from test_killed_commands import start

from preloaded import Value
from quaere.cli.main import main
from quaere.evaluation.qa.items import read_items
from quaere.evaluation.qa.scores import read_evaluation
from quaere.runs import Run
from quaere.runs.config_yaml import write_yaml
from quaere.runs.rows import RunState

NUM = 20
LIMITS = {"turn_tokens": 8, "tool_response_tokens": 64, "sequence_tokens": 1024}
METHODS = [{"name": name, "limits": LIMITS} for name in ("direct", "rag", "ircot")]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two sets of questions and a corpus, in FlashRAG's form, and a model."""
    root, documents = tmp_path_factory.mktemp("suite"), []
    for name in ("one", "two"):
        titles = [f"Bridge {name} {number}" for number in range(NUM)]
        years = [str(1700 + number) for number in range(NUM)]
        asked = [
            {"id": f"q{number}", "question": f"When was {title} built?", "golden_answers": [year], "metadata": {}}
            for number, (title, year) in enumerate(zip(titles, years, strict=True))
        ]
        write_rows(root / f"{name}.jsonl", asked)
        texts = [f'"{title}"\nVenn built it in {year}.' for title, year in zip(titles, years, strict=True)]
        documents += [{"id": f"{name}-{number}", "contents": text} for number, text in enumerate(texts)]
    write_rows(root / "corpus.jsonl", documents)
    assert main(["index", str(root / "corpus.jsonl"), "--out", str(root / "index")]) == 0
    make_base(root)
    return root


def content(place, **changes):
    index = str(place / "index")
    sets = [{"name": name, "questions": str(place / f"{name}.jsonl"), "index": index} for name in ("one", "two")]
    return {"sets": sets, "models": [{"name": "base", "model": str(place / "base")}], "methods": METHODS, **changes}


def write(place, path, **changes):
    path.write_text(write_yaml(content(place, **changes)))
    return str(path)


def words(suite, out):
    # One row at a time: with batches, a stop would change which questions are computed together, and their last bits.
    return ["eval", suite, "--out", str(out), "--device", "cpu", "--max-rows", "1"]


def evaluate(suite, out, *more):
    return main([*words(suite, out), *more])


def items(out):
    """What was answered, by cell: bytes that are equal if every item is."""
    return {path.name: read_items(path) for path in sorted(out.glob("*.items.jsonl.gz"))}


def rows(out):
    """The table without times."""
    return [{**row, "seconds": None} for row in json.loads((out / "table.json").read_text())]


def episodes(path):
    with Run.open(path) as run:
        return list(run.episodes())


@pytest.fixture(scope="module")
def whole(place):
    """A suite that was not stopped; `touches` says how often it touched a file."""
    counted = Value(0)
    assert start(words(write(place, place / "suite.yaml"), place / "whole"), counted=counted) == 0
    (place / "touches").write_text(str(counted.value))
    return place / "whole"


def test_every_cell_is_an_evaluation_with_all_that_it_depends_on(place, whole):
    names = [f"base-{method['name']}-{one}" for one in ("one", "two") for method in METHODS]
    table = rows(whole)
    assert sorted(f"{row['model']}-{row['method']}-{row['set']}" for row in table) == sorted(names)
    for row in table:
        name = f"{row['model']}-{row['method']}-{row['set']}"
        found = read_evaluation(whole / f"{name}.json")
        assert list(found.items) == items(whole)[f"{name}.items.jsonl.gz"] and len(found.items) == NUM
        assert row["num_questions"] == NUM and row["exact_match"]["mean"] == found.score.exact_match.mean
        settings = row["settings"]
        assert settings["limits"]["turn_tokens"] == 8 and settings["dialect"] == row["method"]
        assert len(settings["weights"]) == 16 and settings["versions"]["quaere"] and "CPU" in settings["device"]
        assert bool(settings["index_fingerprint"]) == (row["method"] != "direct")
        assert found.settings["seconds"] > 0
    # The same weights and index in all rows; the questions of the two sets differ.
    assert len({row["settings"]["weights"] for row in table}) == 1
    assert len({row["settings"]["questions_hash"] for row in table}) == 2
    searches = {row["method"]: row["mean_searches"] for row in table}
    assert searches["direct"] == 0 and searches["rag"] == 1 and searches["ircot"] >= 1
    asked = episodes(whole / "base-rag-two")[0]
    assert asked.turns[0].results[0].hits[0].passage.title == asked.task.question.text[9:-7]  # Bridge two 0
    assert len(asked.task.question.answers) == 1


def test_a_cell_scores_as_eval_does(place, whole, tmp_path):
    limits = [word for name, value in LIMITS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    asked = ["--questions", str(place / "one.jsonl"), "--index", str(place / "index"), "--solver-dialect", "rag"]
    how = ["--device", "cpu", "--dtype", "float32", "--max-rows", "1", "--runs", str(tmp_path / "runs")]
    out = tmp_path / "rag.json"
    assert main(["eval", "--model", str(place / "base"), *asked, *limits, *how, "--out", str(out)]) == 0
    assert read_evaluation(out).items == read_evaluation(whole / "base-rag-one.json").items


def test_tables_are_printed_and_written(place, whole, capsys):
    assert evaluate(str(place / "suite.yaml"), whole) == 0  # everything is there: only the tables are made
    said = capsys.readouterr()
    assert "loading" not in said.err
    for text in ("one", "two", "mean of 2 sets", "EM %", "ircot", "minutes on "):
        assert text in said.out
    markdown = (whole / "table.md").read_text()
    assert markdown.count("### ") == 3 and "| base | rag | 20 | " in markdown and "*" not in markdown
    assert (whole / "table.svg").read_text().count("<circle") == 6
    with (whole / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["set"], line["method"]) for line in lines] == [(row["set"], row["method"]) for row in rows(whole)]
    assert lines[0]["settings.limits.turn_tokens"] == "8" and lines[0]["exact_match.mean"] == "0.0"
    assert evaluate(str(place / "suite.yaml"), whole, "--json") == 0
    assert [{**row, "seconds": None} for row in json.loads(capsys.readouterr().out)] == rows(whole)


def test_answers_are_hidden_and_abstention_is_allowed(place, tmp_path, capsys):
    (one, _) = content(place)["sets"]
    methods = [{"name": "plain", "dialect": "rag", "limits": LIMITS}]
    methods.append({"name": "refusing", "dialect": "rag", "abstention": True, "limits": LIMITS})
    suite = write(place, tmp_path / "suite.yaml", sets=[{**one, "limit": 3, "hide_answers": True}], methods=methods)
    assert evaluate(suite, tmp_path / "out") == 0
    assert "one: abstention" in capsys.readouterr().out
    for method, allowed in (("plain", False), ("refusing", True)):
        found = read_evaluation(tmp_path / "out" / f"base-{method}-one.json")
        assert found.settings["abstention"] is allowed and found.score.abstention.refused.num == 3
        asked = episodes(tmp_path / "out" / f"base-{method}-one")
        assert [one.task.question.id for one in asked[:2]] == ["q0", "q0-hidden"]
        shown = [{hit.passage.title for hit in one.turns[0].results[0].hits} for one in asked[:2]]
        assert "Bridge one 0" in shown[0] and "Bridge one 0" not in shown[1]
    # Without hidden answers the same cells are marked, and a method that is shown no passages is refused.
    shown, closed = tmp_path / "shown.yaml", tmp_path / "closed.yaml"
    write(place, shown, sets=[{**one, "limit": 3}], methods=methods)
    assert evaluate(str(shown), tmp_path / "out") == 0
    assert "with other questions" in capsys.readouterr().out
    write(place, closed, sets=[{**one, "hide_answers": True}], methods=["direct"])
    assert evaluate(str(closed), tmp_path / "direct") == 2
    assert "direct is shown none" in capsys.readouterr().err


def stop_in(whole, out, name, num_answered):
    """A copy of a finished suite as it was when a cell had answered some of its questions."""
    shutil.copytree(whole, out)
    for path in out.glob("table.*"):
        path.unlink()
    first = episodes(whole / name)[:num_answered]
    with Run.open(whole / name) as run:
        settings = run.info.settings
    shutil.rmtree(out / name)
    (out / f"{name}.json").unlink()
    with Run.create(out / name, "eval", settings) as run:
        for episode in first:
            run.add_episode(episode)
        run.log_metrics(0, {"time/answering_s": 100.0})
        run.note_end(RunState("stopped"))
    return first


def test_a_stopped_suite_ends_like_one_that_was_not(place, whole, tmp_path, capsys):
    name = "base-rag-two"
    first = stop_in(whole, tmp_path / "out", name, 7)
    (tmp_path / "out" / "base-ircot-one.json").unlink()  # all is answered there, and the result is not written yet
    assert evaluate(str(place / "suite.yaml"), tmp_path / "out") == 0
    said = capsys.readouterr().err
    assert said.count("loading base") == 1 and said.count("evaluating base-") == 2  # a model is loaded once
    assert items(tmp_path / "out") == items(whole) and rows(tmp_path / "out") == rows(whole)
    kept = episodes(tmp_path / "out" / name)
    assert kept[:7] == first and sorted(one.id for one in kept) == sorted(one.id for one in episodes(whole / name))
    # The time of the first part counts.
    assert read_evaluation(tmp_path / "out" / f"{name}.json").settings["seconds"] > 100


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "share", [0.5, *(pytest.param(one / 10, marks=pytest.mark.slow) for one in (1, 2, 3, 4, 7, 9))]
)
def test_a_killed_suite_ends_like_one_that_was_not(place, whole, tmp_path, share):
    typed, out = words(str(place / "suite.yaml"), tmp_path / "out"), tmp_path / "out"
    assert start(typed, moment=int(share * int((place / "touches").read_text()))) == -signal.SIGKILL
    assert len(list(out.glob("*.json"))) < 6
    assert start(typed) == 0
    assert items(out) == items(whole) and rows(out) == rows(whole)
    for name in items(whole):  # no item twice, none lost
        asked = [episode.id for episode in episodes(out / name.partition(".")[0])]
        assert sorted(asked) == sorted({f"q{number}" for number in range(NUM)})


def test_rows_with_another_index_are_marked(place, whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "out")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "oss.md").write_text("# The Oss\n\nThe Oss rises near Halmgate.\n")
    assert main(["index", str(tmp_path / "docs"), "--out", str(tmp_path / "index")]) == 0
    sets = content(place)["sets"]
    changed = [sets[0] | {"index": str(tmp_path / "index")}, sets[1]]
    shutil.rmtree(tmp_path / "out" / "base-ircot-one")
    (tmp_path / "out" / "base-ircot-one.json").unlink()  # this one is asked anew, of the new index
    capsys.readouterr()
    assert evaluate(write(place, tmp_path / "suite.yaml", sets=changed), tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert said.count("rag *") == 1 and "ircot *" not in said and "direct *" not in said
    assert "* base, rag: with another index, not comparable with the others" in said
    means = said[said.index("mean of 2 sets") :]
    assert "rag" not in means and "ircot" in means and "direct" in means
    marked = {(row["set"], row["method"]): row["differs"] for row in rows(tmp_path / "out")}
    assert marked.pop(("one", "rag")) == ["index"] and not any(marked.values())


def test_a_cell_of_other_settings_is_refused_and_kept(place, whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "out")
    before = (tmp_path / "out" / "base-rag-one.json").read_bytes()
    methods = [{"name": "rag", "limits": LIMITS | {"turn_tokens": 9}}]
    assert evaluate(write(place, tmp_path / "suite.yaml", methods=methods), tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert (
        "base-rag-one.json has another result: limits.turn_tokens was 8 and is 9\n" in said
        and "--out another folder" in said
    )
    assert (tmp_path / "out" / "base-rag-one.json").read_bytes() == before
    stop_in(whole, tmp_path / "stopped", "base-rag-one", 3)
    assert evaluate(write(place, tmp_path / "suite.yaml", seed=1), tmp_path / "stopped") == 2
    assert "seed was 0 and is 1" in capsys.readouterr().err


def test_a_run_is_a_model_and_a_method_may_be_of_some_models(place, tmp_path):
    make_base(tmp_path)
    make_run(tmp_path, "full", write_models)
    models = [{"name": "base", "model": str(place / "base")}, {"name": "late", "run": "full", "checkpoint": 2}]
    models.append({"name": "early", "run": str(tmp_path / "runs" / "full"), "checkpoint": 1})
    limits = LIMITS | {"answer_turn": True}
    methods = [{"name": "rag", "limits": limits, "models": ["base"]}, {"name": "trained", "models": ["late", "early"]}]
    sets = [content(place)["sets"][0] | {"limit": 2}]
    suite = write(place, tmp_path / "suite.yaml", models=models, methods=methods, sets=sets, out=str(tmp_path / "out"))
    more = ["--device", "cpu", "--runs", str(tmp_path / "runs"), "--deterministic"]
    assert main(["eval", suite, *more]) == 0
    table = {row["model"]: row for row in rows(tmp_path / "out")}
    assert {name: row["method"] for name, row in table.items()} == {
        "base": "rag",
        "late": "trained",
        "early": "trained",
    }
    assert table["late"]["settings"]["model"] == "full/solver@2"
    assert table["base"]["settings"]["limits"]["answer_turn"] is True
    # As the run was trained: its dialect and its limits.
    assert table["late"]["settings"]["dialect"] == "tool-call"
    assert table["late"]["settings"]["limits"]["turn_tokens"] == 16
    assert len({row["settings"]["weights"] for row in table.values()}) == 3
    # A cell of a deterministic suite that was stopped begins anew, so that its batches are the same.
    (tmp_path / "out" / "late-trained-one.json").unlink()
    before = episodes(tmp_path / "out" / "late-trained-one")
    assert main(["eval", suite, *more]) == 0
    again = episodes(tmp_path / "out" / "late-trained-one")
    assert {one.id: one.token_ids for one in again} == {one.id: one.token_ids for one in before}
    assert {row["model"]: row for row in rows(tmp_path / "out")} == table


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methds": ["rag"]}, "unknown field `methds`"),
        ({"sets": [{"name": "one"}]}, "missing required field `questions` - at `sets[0]`"),
        ({"sets": [{"name": "one", "questions": "x", "limit": 0}]}, "Expected `int` >= 1 - at `sets[0].limit`"),
        ({"sets": [{"name": "one", "questions": "x", "expect": "squad"}]}, "sets: expect of one must be one of nq, "),
        ({"sets": []}, "sets is empty"),
        ({"models": [{"name": "a/b", "model": "x"}]}, "models: 'a/b' must be letters"),
        ({"models": [{"name": "a", "model": "x", "run": "y"}]}, "models: a needs either model or run"),
        ({"models": [{"name": "a", "model": "x", "checkpoint": 3}]}, "models: a has a checkpoint, which needs run"),
        ({"methods": ["rag", "rag"]}, "methods: rag is there twice"),
        ({"methods": ["rga"]}, "methods: the dialect of rga must be one of tool-call, "),
        ({"methods": [{"name": "rag", "models": ["late"]}]}, "methods: rag names a model that is not there: late"),
        ({"methods": [{"name": "rag", "limits": {"max_trns": 2}}]}, "did you mean max_turns?"),
    ],
)
def test_a_suite_that_is_wrong_gets_one_line(place, tmp_path, capsys, changes, said):
    assert evaluate(write(place, tmp_path / "suite.yaml", **changes), tmp_path / "out") == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert said in first and "suite.yaml: " in first
    assert not (tmp_path / "out").exists()


def test_what_only_the_files_show_is_refused_before_a_model_is_loaded(place, tmp_path, capsys):
    one = content(place)["sets"][0]
    write_rows(tmp_path / "open.jsonl", [{"question": "Who built it?"}, {"question": "When?", "golden_answers": []}])
    cases = [
        ({"sets": [one | {"expect": "bamboogle", "limit": 5}]}, "and the test split of bamboogle has 125"),
        ({"sets": [one | {"expect": "hotpotqa"}]}, "try: give all of that split (dev)"),
        ({"sets": [one | {"questions": str(tmp_path / "open.jsonl")}]}, "open.jsonl has an answer to compare with"),
        ({"sets": [{**one, "index": ""}]}, "sets: one has no index, and rag searches"),
        ({"sets": [one | {"questions": "nowhere.jsonl"}]}, "nowhere.jsonl"),
        ({"models": [{"name": "a", "run": "nowhere"}]}, "no run nowhere"),
        ({"methods": [{"name": "ragg"}]}, "methods: ragg names no dialect, and base was not trained in one"),
        (
            {
                "models": [{"name": name, "model": str(place / "base")} for name in ("a", "a-rag")],
                "methods": ["rag", {"name": "rag-rag", "dialect": "rag"}],
            },
            "two cells of the suite would be called a-rag-rag-one",
        ),
    ]
    for changes, said in cases:
        assert evaluate(write(place, tmp_path / "suite.yaml", **changes), tmp_path / "out") == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", [["--model", "x"], ["--limit", "3"], ["--seed", "4"], ["--compare", "a.json"]])
def test_options_that_a_suite_has_itself_are_refused(place, tmp_path, capsys, given):
    assert evaluate(write(place, tmp_path / "suite.yaml"), tmp_path / "out", *given) == 2
    assert f"{given[0]} cannot be given with a suite" in capsys.readouterr().err


def test_a_suite_needs_a_folder_for_its_results(place, tmp_path, capsys):
    assert main(["eval", write(place, tmp_path / "suite.yaml")]) == 2
    assert "has no key `out`" in capsys.readouterr().err
    assert main(["eval", str(tmp_path / "nowhere.yaml")]) == 2
    assert f"quaere: the settings file {tmp_path / 'nowhere.yaml'} does not exist" in capsys.readouterr().err


def test_an_endpoint_that_is_not_reached_is_asked_again(place, tmp_path, capsys):
    models = [{"name": "far", "model": "openai:x@http://127.0.0.1:9/v1"}]
    sets = [content(place)["sets"][0] | {"limit": 1}]
    suite = write(place, tmp_path / "suite.yaml", models=models, sets=sets, methods=["direct"])
    for _ in range(2):  # its failure is no answer, which a second try would keep
        assert evaluate(suite, tmp_path / "out") == 2
        assert "cannot be reached" in capsys.readouterr().err
    assert not (tmp_path / "out" / "far-direct-one.json").exists()


def test_a_folder_that_is_no_run_is_not_deleted(place, tmp_path, capsys):
    folder = tmp_path / "out" / "base-rag-one"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("mine")
    suite = write(place, tmp_path / "suite.yaml", sets=content(place)["sets"][:1], methods=METHODS[1:2])
    assert evaluate(suite, tmp_path / "out", "--deterministic") == 2
    assert "base-rag-one" in capsys.readouterr().err and (folder / "mine.txt").read_text() == "mine"
