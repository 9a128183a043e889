"""`quaere curriculum`, as it is typed."""

import json
import shutil
import sqlite3
import sys

import pytest

from quaere.cli.main import main
from quaere.errors import install_hint
from quaere.recipes.drzero import DrZeroConfig
from quaere.records import Candidate, Episode, Evidence, ProposeTask, Support
from quaere.runs import Run
from quaere.search.index import IndexSettings
from quaere.search.index_build import build_index
from quaere.training.config import config_to_yaml

HOSTILE = "[red]Who[/red] built \x1b[2J\u202e[link=x]it?"
HALM = (
    "The Halm bridge stands at Halmgate. " * 20 + "It was built by Orsolya Venn in 1702. " + "Boats pass below. " * 40
)
SPAN = "It was built by Orsolya Venn in 1702."


def candidate(id, **changes):
    start = HALM.index(SPAN)
    values = {
        "step": 2,
        "iteration": 0,
        "episode_id": id,
        "document_id": "halm",
        "hops": 2,
        "question": f"Who built the bridge of {id}?",
        "answer": "Orsolya Venn",
        "num_right": 2,
        "num_attempts": 5,
        "scores": {"format": 1.0},
        "span": "It  was built by Orsolya Venn in 1702.",
        "evidence": Evidence("halm", start, start + len(SPAN), SPAN),
        "support": Support(0.8, 0.2, 5),
    }
    return Candidate(id, **{**values, **changes})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "docs.jsonl").write_text(json.dumps({"id": "halm", "title": "Halm", "text": HALM}) + "\n")
    index = build_index(folder / "docs.jsonl", folder / "index", IndexSettings())
    settings = {"recipe": "drzero", "index": str(index.path), "index_fingerprint": index.fingerprint}
    config = config_to_yaml(DrZeroConfig(model="m", index=str(index.path), prompts="brief"))
    with Run.create(folder / "runs" / "r", "evolve", settings, config=config) as run:
        run.add_candidates(
            [
                candidate("a"),
                candidate("b", hops=1, reason="never solved", num_right=0, support=Support(0.2, 0.2, 5)),
                candidate("c", iteration=1, question=HOSTILE, evidence=None, support=None, span="fabricated"),
                candidate("d", reason="invalid", question="", answer="", span="", evidence=None, support=None),
                candidate("e", reason="refused", refusals=("echo",)),
            ],
            read_document=index.document,
        )
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of the runs; the index is where it was."""
    shutil.copytree(made / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


@pytest.fixture
def quaere(folder, capsys):
    def call(line, code=0):
        assert main(["curriculum", "r", *line.split()]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return call


def listed(quaere, line=""):
    return [item["id"] for item in json.loads(quaere(f"{line} --json"))]


# ---------------------------------------------------------------------------------------------------------------- list


def test_the_list_says_why_and_how_sure(quaere):
    lines = quaere("").splitlines()
    assert lines[0].split() == [
        "id",
        "it",
        "hops",
        "searches",
        "state",
        "verdict",
        "votes",
        "V",
        "evidence",
        "question",
    ]
    assert lines[1].rstrip().split(maxsplit=8) == [
        "a",
        "0",
        "2",
        "1",
        "kept",
        "2/5",
        "+0.60",
        "verbatim",
        "Who built the bridge of a?",
    ]
    assert lines[2].split()[4:8] == ["never", "solved", "0/5", "+0.00"]
    assert "5 candidates, the solver learns from 2" in lines


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ("", "abcde"),
        ("--kept", "ac"),
        ("--dropped", "bde"),
        ("--learned", "ac"),
        ("--reason refused", "e"),
        ("--hops 1", "b"),
        ("--searches 1", "abcde"),
        ("--searches 2", ""),
        ("--iteration 1", "c"),
        ("--verdict none", "abcde"),
        ("--verdict flagged", ""),
        ("--min value=0.5", "ae"),
        ("--max p+=0.5", "b"),
        ("--min votes=1 --max rate=0.4", "acde"),
        ("--text FABRICATED", "c"),
        ("--text bridge --kept", "a"),
        ("--limit 2 --offset 1", "bc"),
        ("--limit 0", ""),
    ],
)
def test_filters(quaere, line, ids):
    assert listed(quaere, line) == list(ids)


def test_a_page_says_what_is_beyond_it(quaere):
    assert "5 candidates, the solver learns from 2; 2 to 3 shown; --offset 3 goes on" in quaere("--limit 2 --offset 1")
    assert "none shown" in quaere("--offset 9")


def test_nothing_in_a_question_acts_on_the_terminal(quaere):
    for line in ("", "show c"):
        shown = quaere(line)
        assert "[red]Who[/red] built ␛[2J\\u202e[link=x]it?" in shown
        assert "\x1b" not in shown and "\u202e" not in shown
    assert "\x1b" not in quaere("show c --json")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show x", "run r has no candidate x"),
        ("--min vale=1", "no candidate of run r has a measure vale"),
        ("--kept show a", "filters are for the list, export and quality"),
        ("--limit 3 export a.jsonl", "--limit and --offset are for the list"),
        ("accept a d", "d cannot be accepted: it has no question"),
        ("reject a x", "run r has no candidate x"),
        ("clear a", "there is no verdict on a"),
        ("show a --index nowhere", "nowhere does not exist"),
        ("export out.csv", "neither .jsonl nor .parquet"),
        ("export out.jsonl --verl", "verl reads Parquet"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(quaere, folder, line, said):
    assert said in quaere(line, code=2)
    assert not list(folder.glob("out.*"))
    with Run.open(folder / "runs" / "r") as run:
        assert run.verdicts() == {}


# ---------------------------------------------------------------------------------------------------------------- show


def test_show_tells_everything_with_the_span_in_its_context(quaere):
    shown = quaere("show a")
    flat = " ".join(shown.split())
    start = HALM.index(SPAN)
    for part in (
        "question: Who built the bridge of a?",
        "answer: Orsolya Venn",
        "document: halm",
        f"evidence: halm {start}-{start + len(SPAN)}, verbatim",
        f"The Halm bridge stands at Halmgate. »{SPAN}« Boats pass below.",
        "as written: It was built",
        "support: p+ 0.800, p- 0.200, V +0.600 (of 5 samples each)",
        "votes: 2/5",
        "scores: format 1",
        "the run: kept it",
        "the solver: learns from it",
    ):
        assert part in flat, part
    assert "refused by: echo" in quaere("show e")
    assert "evidence: found in nothing it was shown: fabricated" in quaere("show c")


def test_show_tells_what_the_candidates_own_episode_was_paid(quaere, folder):
    with Run.open(folder / "runs" / "r", write=True) as run:
        for id, paid in (("b", 0.25), ("a", 0.75)):
            episode = Episode(id, ProposeTask(id, None, 2), "tool-call", "m", 0, (), (), None, "turn_limit")
            run.add_episode(episode, {"reward/total": paid})
    assert "paid: reward/total 0.75" in quaere("show a").splitlines()
    assert "paid: reward/total 0.25" in quaere("show b").splitlines()


def change_evidence(folder, text):
    """As if the database had been tampered with, or written by a program that does not check."""
    database = sqlite3.connect(folder / "runs" / "r" / "run.db")
    with database:
        (stored,) = database.execute("SELECT evidence FROM candidates WHERE id = 'a'").fetchone()
        changed = json.dumps({**json.loads(stored), "text": text})
        database.execute("UPDATE candidates SET evidence = ? WHERE id = 'a'", (changed,))
    database.close()


def test_evidence_that_is_not_in_its_document_is_never_shown_as_if_it_were(quaere, folder):
    change_evidence(folder, SPAN.replace("Venn", "Vann"))
    assert "mismatch" in quaere("").splitlines()[1]
    assert "1 with evidence that is not in its document" in quaere("")
    shown = quaere("show a")
    assert "mismatch" in shown and "but the evidence is 'It was built by Orsolya Vann in 1702.'" in " ".join(
        shown.split()
    )
    assert "Halmgate" not in shown
    assert "1 with evidence that is not in its document" in quaere("export a.jsonl")
    assert json.loads((folder / "a.jsonl").read_text().splitlines()[0])["evidence_state"] == "mismatch"


def test_without_the_documents_it_says_that_nothing_was_checked(quaere, made, folder):
    moved = made / "index"
    config = (folder / "runs" / "r" / "config.yaml").read_text().replace(str(moved), str(folder / "gone"))
    (folder / "runs" / "r" / "config.yaml").write_text(config)
    shown = quaere("show a")
    assert "unchecked" in shown and "so evidence is not checked" in " ".join(shown.split())
    assert f"  {SPAN}" in shown.splitlines()
    assert "verbatim" in quaere(f"show a --index {moved}")
    assert json.loads(quaere("--hops 1 --json"))[0]["evidence_state"] == "unchecked"


def test_other_documents_are_told(quaere, folder):
    (folder / "docs.jsonl").write_text(json.dumps({"id": "halm", "title": "Halm", "text": "Another text."}) + "\n")
    build_index(folder / "docs.jsonl", folder / "other", IndexSettings())
    shown = quaere("show a --index other")
    assert "other holds other documents than when the run began" in shown and "mismatch" in shown


# ------------------------------------------------------------------------------------------------------------- verdicts


def test_verdicts_are_given_shown_and_taken_back(quaere):
    assert quaere("reject a c --note vague") == "2 rejected\n"
    assert quaere("accept b").strip() == "1 accepted"
    assert quaere("flag e --json") == '{\n  "flagged": 1\n}\n'
    assert listed(quaere, "--learned") == ["b"]
    assert listed(quaere, "--verdict rejected") == ["a", "c"]
    assert listed(quaere, "--verdict none") == ["d"]
    shown = quaere("show a")
    assert "the run: kept it" in shown and ": vague" in shown and "the solver: does not learn from it" in shown
    assert quaere("clear a c b").strip() == "3 cleared"
    assert listed(quaere, "--learned") == ["a", "c"]


def test_verdicts_on_what_was_written_anew_are_told(quaere, folder):
    quaere("reject a b")
    with Run.open(folder / "runs" / "r", write=True) as run:
        run.truncate_after(1)
        run.add_candidates([candidate("a", question="Who paid for it?")])
    assert "2 verdicts on questions that were written anew since: not honoured" in quaere("")
    assert "not honoured: Who built the bridge of a?" in " ".join(quaere("show a").split())
    assert listed(quaere, "--learned") == ["a"]
    assert quaere("clear a b").strip() == "2 cleared"


# ---------------------------------------------------------------------------------------------------------------- files


def edit(path, **verdicts):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [json.dumps({**row, "verdict": verdicts.get(row["id"], row["verdict"])}) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def test_an_export_is_edited_and_imported(quaere, folder):
    quaere("reject a --note vague")
    quaere("flag c")
    assert quaere("export all.jsonl").strip() == "5 exported"
    assert quaere("import all.jsonl").strip() == "0 cleared, 5 unchanged"
    edit(folder / "all.jsonl", b="accepted", c=None, e="rejected")
    assert quaere("import all.jsonl").strip() == "1 accepted, 1 rejected, 1 cleared, 2 unchanged"
    with Run.open(folder / "runs" / "r") as run:
        assert {id: (v.kind, v.note) for id, v in run.verdicts().items()} == {
            "a": ("rejected", "vague"),
            "b": ("accepted", ""),
            "e": ("rejected", ""),
        }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "x", "verdict": "flagged"}, "run r has no candidate x"),
        ({"id": "b", "verdict": "accept"}, "'accept', the verdict of b, is not one"),
        ({"id": "d", "verdict": "accepted"}, "d cannot be accepted"),
        ({"id": "b", "verdict": "accepted", "question": "Who?"}, "the question of b is not the one in the run"),
        ({"id": "b", "verdict": "accepted", "answer": "Brod"}, "the answer of b is not the one in the run"),
    ],
)
def test_a_file_that_does_not_belong_changes_nothing(quaere, folder, row, said):
    (folder / "mine.jsonl").write_text(json.dumps({"id": "a", "verdict": "rejected"}) + "\n" + json.dumps(row) + "\n")
    assert said in quaere("import mine.jsonl", code=2)
    assert listed(quaere, "--verdict none") == list("abcde")


def test_filters_narrow_an_export_wherever_they_stand(quaere, folder):
    quaere("--kept export before.jsonl --iteration 0")
    exported = [json.loads(line) for line in (folder / "before.jsonl").read_text().splitlines()]
    assert json.loads(quaere("--kept --iteration 0 --json")) == exported  # one shape, whichever way it is asked for
    shown = json.loads(quaere("show a --json"))
    assert {name: shown[name] for name in exported[0]} == exported[0]
    quaere("export after.jsonl --kept --iteration 0")
    assert (folder / "before.jsonl").read_text() == (folder / "after.jsonl").read_text()
    assert [json.loads(line)["id"] for line in (folder / "after.jsonl").read_text().splitlines()] == ["a"]


def test_an_export_replaces_nothing_unasked(quaere, folder):
    (folder / "mine.jsonl").write_text("mine")
    assert "exists already" in quaere("export mine.jsonl", code=2)
    assert (folder / "mine.jsonl").read_text() == "mine"
    quaere("export mine.jsonl --force")
    assert (folder / "mine.jsonl").read_text().count("\n") == 5


def test_parquet_goes_out_and_comes_back(quaere, folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    quaere("reject a")
    quaere("export all.parquet")
    quaere("clear a")
    assert quaere("import all.parquet").strip() == "1 rejected, 0 cleared, 4 unchanged"
    quaere("accept b")
    quaere("export train.parquet --verl")
    rows = parquet.read_table(folder / "train.parquet").to_pylist()
    assert [row["extra_info"]["id"] for row in rows] == ["b", "c"]
    assert rows[0]["prompt"][-1] == {"role": "user", "content": "Question:\nWho built the bridge of b?"}


def test_without_pyarrow_it_says_what_to_install(quaere, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert install_hint("parquet") in quaere("export all.parquet", code=2)
    assert list(folder.glob("*.parquet")) == []


# -------------------------------------------------------------------------------------------------------------- quality


def test_quality_of_a_run_counts_what_the_solver_learns_from(quaere, folder):
    said = quaere("quality").splitlines()
    assert said[0].startswith("2 questions, 0 proven: 0.000 [0.000, ")
    assert [line.strip() for line in said[1:]] == ["1  names nothing", "1  is not one question"]
    quaere("reject a")
    assert json.loads(quaere("quality --json"))["faults"] == {"is not one question": 1}
    assert "no question to check" in quaere("quality --hops 1", code=2)


def test_quality_of_a_file_needs_its_documents(made, folder, capsys):
    rows = [
        {"question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "gold_ids": ["halm"]},
        {"question": "Who paid for the Halm bridge?", "answers": ["Marta Oleen"], "gold_ids": ["halm"]},
    ]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["curriculum", "mine.jsonl", "quality"]
    assert main(asked[:2]) == 2  # a list is of a run
    assert f"try: quaere {' '.join(asked)} --index DIR" in capsys.readouterr().err
    assert main([*asked, "--index", str(made / "index"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["num"], told["num_proven"], told["share"]["mean"]) == (2, 1, 0.5)
    assert told["faults"] == {"no sentence holds its answer": 1}
    for more, said in (([], "--index DIR"), (["--kept", "--index", str(made / "index")], "is read as a whole")):
        assert main([*asked, *more]) == 2
        assert said in capsys.readouterr().err
