"""`quaere curriculum RUN add FILE`, as it is typed."""

import json

import pytest

from quaere.cli.main import main
from quaere.records import Candidate, Evidence
from quaere.runs import Run
from quaere.search.index import IndexSettings
from quaere.search.index_build import build_index

TEXT = "The Halm bridge stands at Halmgate. Orsolya Venn built it in 1702."
SPAN = "Orsolya Venn built it in 1702."
PLACE = Evidence("halm", 36, 66, SPAN)
WRITTEN = ("id", "question", "answer", "facts", "searches", "document_id", "span", "evidence")


def candidate(id, **changes):
    values = {
        "step": 2,
        "iteration": 0,
        "episode_id": id,
        "document_id": "halm",
        "hops": 2,
        "question": f"Who built the bridge of {id}?",
        "answer": "Orsolya Venn",
    }
    return Candidate(id, **{**values, **changes})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two runs on the same documents: `one` has written questions, `two` has not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "docs.jsonl").write_text(json.dumps({"id": "halm", "title": "Halm", "text": TEXT}) + "\n")
    index = build_index(tmp_path / "docs.jsonl", tmp_path / "index", IndexSettings())
    settings = {"index": str(index.path), "index_fingerprint": index.fingerprint}
    with Run.create(tmp_path / "runs" / "one", "evolve", settings) as run:
        run.add_candidates(
            [
                candidate("a", span="Orsolya Venn  built it in 1702.", evidence=PLACE),
                candidate("b", reason="never solved", span="fabricated"),
                candidate("c", iteration=1, question="Who built the bridge of a?"),
                candidate("d", reason="invalid", question="", answer=""),
            ],
            read_document=index.document,
        )
    Run.create(tmp_path / "runs" / "two", "evolve", settings).close()
    return tmp_path


@pytest.fixture
def quaere(folder, capsys):
    def call(line, code=0):
        assert main(["curriculum", *line.split()]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return call


def write(folder, *rows, name="mine.jsonl"):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path):
    if path.suffix == ".parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text().splitlines()]


def listed(quaere, line="two"):
    return json.loads(quaere(f"{line} --json"))


def written(rows):
    """What a person would call the question itself."""
    return [{name: row[name] for name in WRITTEN if name != "id"} for row in rows]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_export_is_added_to_another_run_and_comes_out_the_same(quaere, folder, form):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    quaere(f"one export all.{form}")
    # c says the same as a, in a later iteration.
    assert quaere(f"two add all.{form}").strip() == "1 added, 2 not learned from, 1 there already"
    quaere(f"two export out.{form}")
    (row,) = read(folder / f"out.{form}")
    assert written([row]) == written(read(folder / f"all.{form}")[:1])
    assert (row["evidence_state"], row["learned"], row["added"]) == ("verbatim", True, True)
    assert (row["origin"], row["run"], row["iteration"]) == ("run one, a", "two", -1)
    assert quaere(f"two add all.{form}").strip() == "0 added, 2 not learned from, 2 there already"
    assert quaere(f"two add all.{form} --all").strip() == "1 added, 1 not learned from, 2 there already"
    quaere(f"two export again.{form} --added")
    assert written(read(folder / f"again.{form}")) == written(read(folder / f"all.{form}")[:2])
    quaere(f"one add again.{form} --iteration 4")
    assert [row["id"] for row in listed(quaere, "one --added")] == [row["id"] for row in listed(quaere)]


def test_ones_own_questions_need_words_and_nothing_else(quaere, folder):
    write(
        folder,
        {"question": "Who built it?", "answer": "Orsolya Venn", "span": SPAN},
        {"id": "q7", "question": "When?", "answers": ["1702", "in 1702"], "hops": 3, "other": [1]},
    )
    assert json.loads(quaere("two add mine.jsonl --iteration 1 --json")) == {"added": 2}
    first, second = listed(quaere)
    assert (first["answer"], first["span"], first["evidence"], first["hops"]) == ("Orsolya Venn", SPAN, [], 0)
    assert (second["answer"], second["hops"], second["iteration"]) == ("1702", 3, 1)
    assert second["answers"] == ["1702", "in 1702"] and "answer: 1702 or in 1702" in quaere(f"two show {second['id']}")
    lines = quaere("two").splitlines()
    assert lines[1].split()[:3] == [first["id"], "1", "added"]
    assert lines[2].split()[:4] == [second["id"], "1", "3", "added"]  # three facts: three searches
    assert "2 candidates, the solver learns from 2" in lines
    shown = quaere(f"two show {first['id']}")
    assert (
        "for iteration 1, searches needed unknown" in shown
        and "from mine.jsonl, row 1" in shown
        and "quaere runs show" not in shown
    )
    assert f"evidence: as it was given, not checked: {SPAN}" in shown
    other = quaere(f"two show {second['id']}")
    assert "from mine.jsonl, q7" in other and "for iteration 1, needs 3 searches" in other


def test_evidence_stays_where_the_documents_have_it_and_is_mere_text_elsewhere(quaere, folder):
    elsewhere = {"doc_id": "oss", "start": 0, "end": 4, "text": "1703"}
    here = {"doc_id": "halm", "start": 36, "end": 66, "text": SPAN}
    write(
        folder,
        {"question": "Who?", "answer": "Venn", "evidence": [elsewhere, here]},  # a hop each: the last has the answer
        {"question": "When?", "answer": "1703", "span": "as written", "evidence": [elsewhere]},
    )
    assert quaere("two add mine.jsonl").strip() == "2 added, 1 with evidence kept as mere text"
    first, second = listed(quaere)
    assert (first["evidence"], first["document_id"]) == ([here], "halm")
    assert (second["evidence"], second["span"], second["document_id"]) == ([], "1703", "oss")
    assert "«" in quaere(f"two show {first['id']}")


def test_verdicts_hold_for_what_was_added(quaere, folder):
    write(folder, {"question": "Who?", "answer": "Venn"}, {"question": "When?", "answer": "1702"})
    quaere("two add mine.jsonl")
    first, second = [item["id"] for item in listed(quaere)]
    assert quaere(f"two reject {first} --note vague").strip() == "1 rejected"
    assert [item["id"] for item in listed(quaere, "two --learned")] == [second]
    quaere("two export edited.jsonl")
    assert quaere("two import edited.jsonl").strip() == "0 cleared, 2 unchanged"
    quaere(f"two clear {first}")
    assert [item["id"] for item in listed(quaere, "two --learned")] == [first, second]


GOOD = {"question": "Who?", "answer": "Venn"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "mine.jsonl has no question"),
        ([GOOD, {"answer": "Venn"}], "mine.jsonl, row 2: the question is missing"),
        ([GOOD, {"question": " ", "answer": "Venn"}], "row 2: the question is missing"),
        ([GOOD, {"question": "When?"}], "row 2: the answer is missing"),
        ([GOOD, {"question": "When?", "answers": []}], "row 2: the answer is missing"),
        ([GOOD, {"question": "When?", "answer": "", "learned": True}], "row 2: the answer is missing"),
        ([GOOD, {"question": "When?", "answer": 1702}], "line 2: Expected `str | null`, got `int`"),
        ([GOOD, {"question": "When?", "answer": "1702", "hops": -1}], "line 2: Expected"),
        ([GOOD, {"question": "When?", "answer": "1702", "evidence": [{"text": "x"}]}], "line 2: Object missing"),
        ([GOOD, GOOD], "row 2: the curriculum has this question already, as row 1"),
        ([{"question": "Old?", "answer": "Yes"}], "row 1: the curriculum has this question already, as added-"),
        ([{"question": "Who built the bridge of b?", "answer": "Orsolya Venn"}], "has this question already, as b"),
    ],
)
def test_a_file_with_anything_wrong_in_it_adds_nothing(quaere, folder, rows, said):
    write(folder, {"question": "Old?", "answer": "Yes"}, name="old.jsonl")
    quaere("one add old.jsonl")
    write(folder, *rows)
    told = quaere("one add mine.jsonl", code=2)
    assert said in told
    assert [item["question"] for item in listed(quaere, "one --added")] == ["Old?"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("two add nowhere.jsonl", "nowhere.jsonl cannot be read"),
        ("two add docs.csv", "neither .jsonl nor .parquet"),
        ("two add broken.parquet", "broken.parquet is not a valid Parquet file"),
        ("asked add mine.jsonl", "run asked is of kind ask: it has no solver"),
        ("two --kept add mine.jsonl", "filters are for the list, export and quality"),
    ],
)
def test_what_cannot_be_added_is_said_in_a_line(quaere, folder, line, said):
    Run.create(folder / "runs" / "asked", "ask").close()
    write(folder, GOOD)
    (folder / "broken.parquet").write_text("no")
    if "parquet" in line:
        pytest.importorskip("pyarrow")
    assert said in quaere(line, code=2)
    assert listed(quaere) == []


def test_a_table_without_answers_or_with_odd_hops_adds_nothing(quaere, folder):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"question": ["Who?"]}), folder / "a.parquet")
    assert "a.parquet, row 1: the answer is missing" in quaere("two add a.parquet", code=2)
    words = {"question": ["Who?", "When?"], "answer": ["Venn", "1702"]}
    parquet.write_table(arrow.table({**words, "hops": [1.0, 2.5]}), folder / "a.parquet")
    assert "a.parquet, row 2: Expected" in quaere("two add a.parquet", code=2)
    assert listed(quaere) == []
    parquet.write_table(arrow.table({**words, "hops": [2.0, None]}), folder / "a.parquet")  # as data frames write it
    assert quaere("two add a.parquet").strip() == "2 added"
    assert [item["hops"] for item in listed(quaere)] == [2, 0]
