"""`quaere report`: what a person reads, what is written, what JSON holds, and one clear line for every bad input."""

import json
import re
from urllib.parse import unquote

import pytest

import tiny
from quaere.chat.renderer import Renderer
from quaere.cli.main import main
from quaere.rollout.policy import TokenPolicy
from quaere.runs import Run
from reporting import answer, search
from scripted import ScriptedSampler

HALM = "Orsolya Venn built the Halm bridge in 1702."
TEXT = "Orsolya Venn built the bridge [1]. She paid for it [5].\n\nConclusion: It is hers [1]."


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    docs = root / "docs" / "old stone"
    docs.mkdir(parents=True)
    (docs / "halm.md").write_text(f"# Halm bridge\n\nIt crosses the Oss. {HALM}\n", encoding="utf-8")
    (root / "docs" / "oss.txt").write_text("The Oss rises in the Korrin hills.\n", encoding="utf-8")
    assert main(["index", str(root / "docs"), "--out", str(root / "index")]) == 0
    rows = [{"id": "r/1", "title": "Halm bridge", "text": HALM}, {"id": "r/2", "title": "Oss", "text": "It is long."}]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["index", str(root / "rows.jsonl"), "--out", str(root / "rows-index")]) == 0
    asked = [{"id": f"q{n}", "question": f"What is known of bridge {n}?"} for n in range(3)]
    (root / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    return root


@pytest.fixture
def says(monkeypatch):
    """Let whatever model is opened say these turns; the loop, the index and the search are the real ones."""

    def script(turns):
        tokenizer = tiny.tokenizer()

        def opened(model, **engine):
            return TokenPolicy(ScriptedSampler(tokenizer, turns, name=model), Renderer(tokenizer))

        monkeypatch.setattr("quaere.rollout.policy.open_policy", opened)

    return script


def report(place, *more, index="index", strict="--no-strict"):
    """A report by the scripted model; sentences without support are marked, so that all it wrote is seen."""
    where = ["--index", str(place / index), "--runs", str(place / "runs"), "--model", "scripted-one"]
    return main(["report", *more, *where, strict])


MARKED = TEXT.replace("[5].", "[5] (unsupported).")


def test_turns_then_the_report_with_its_sources_and_counts(place, says, capsys):
    says({"report-r0": [search("Halm bridge builder"), answer(TEXT)]})
    assert report(place, "Who built it?") == 0
    out = capsys.readouterr().out
    shown = " ".join(out.split())
    assert "Turn 1" in shown and "→ searches: Halm bridge builder" in shown and MARKED.split("\n")[0] in shown
    assert "[1] Halm bridge old stone/halm.md 0-" in shown
    assert "3 statements, 3 of them cited; 3 citations, 2 resolved (67 %), 1 unresolved unresolved: [5]" in shown
    path = out.rsplit("quaere runs show", 1)[1].strip()
    assert main(["runs", "show", path, "report-r0"]) == 0
    assert "3 citations, 2 resolved (67 %), 1 unresolved" in " ".join(capsys.readouterr().out.split())
    with Run.open(path) as run:
        assert run.info.kind == "report" and run.info.settings["guided"] is False
        (row,) = run.index()
        assert row.metrics["report/num_unresolved"] == 1
        assert run.episode("report-r0").outcome.text == TEXT


@pytest.mark.parametrize("name", ["report.md", "sub/report.html"])
def test_a_page_links_to_the_document(place, says, tmp_path, name):
    says({"report-r0": [search("Halm bridge builder"), answer(TEXT)]})
    assert report(place, "Who built it?", "--out", str(tmp_path / name)) == 0
    page = (tmp_path / name).read_text(encoding="utf-8")
    assert "no such source" in page and "Unresolved citations" in page
    (path,) = re.findall(r"[(\"](\./[^#\"]+)#:~:text=", page)
    assert "old%20stone" in path
    assert HALM in (tmp_path / name).parent.joinpath(unquote(path)).read_text(encoding="utf-8")
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == {name.rpartition("/")[2]}


def test_a_folder_gets_both_pages_and_documents_that_were_no_files(place, says, tmp_path, capsys):
    turns = [search("Halm bridge builder"), answer(TEXT)]
    says({"q0-r0": turns, "q1-r0": [answer("Nothing is known [1].")], "q2-r0": ["hm"] * 10})
    asked = ["--questions", str(place / "questions.jsonl")]
    assert report(place, *asked, "--out", str(tmp_path / "out"), index="rows-index") == 0
    out = capsys.readouterr().out
    assert str(tmp_path / "out") in out.splitlines()
    shown = " ".join(out.split())
    assert "3 questions, 2 reports, 4 citations, 2 resolved (50%), 2 unresolved" in shown and "(no report)" in shown
    files = {file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*") if file.is_file()}
    (document,) = [name for name in files if name.startswith("documents/")]
    assert files == {"q0.md", "q0.html", "q1.md", "q1.html", document}
    for name in ("q0.md", "q0.html"):
        page = (tmp_path / "out" / name).read_text()
        (path,) = re.findall(r"[(\"](\./[^#\"]+)#:~:text=", page)
        assert (tmp_path / "out" / unquote(path)).read_text() == HALM


def test_json_has_everything(place, says, capsys):
    says({"report-r0": [search("Halm bridge builder"), answer(TEXT)]})
    assert report(place, "Who built it?", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == MARKED and found["conclusion"] == "It is hers [1]." and found["end"] == "answered"
    assert (found["citations"], found["unresolved"]) == ([1, 5, 1], [5])
    assert found["resolved_share"] == pytest.approx(2 / 3) and found["searches"] == ["Halm bridge builder"]
    assert all(MARKED[said["start"] : said["end"]] == said["text"] for said in found["statements"])
    (source,) = found["sources"]
    assert source["doc_id"] == "old stone/halm.md" and HALM in source["text"] and source["number"] == 1
    says({"report-r0": ["hm"] * 10})
    assert report(place, "Who built it?", "--json", "--max-turns", "2") == 3
    found = json.loads(capsys.readouterr().out)
    assert found["report"] is None and found["end"] == "turn_limit" and len(found["failures"]) == 2


def test_what_has_no_support_is_left_out(place, says, capsys, tmp_path):
    says({"report-r0": [search("Halm bridge builder"), answer(TEXT)]})
    assert report(place, "Who built it?", "--json", "--out", str(tmp_path / "r.md"), strict="--strict") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == "Orsolya Venn built the bridge [1].\n\nConclusion: It is hers [1]."
    assert found["unresolved"] == [] and "She paid" not in (tmp_path / "r.md").read_text()
    says({"report-r0": [search("Halm bridge builder"), answer("She paid for it [5]. All is well.")]})
    assert report(place, "Who built it?", "--out", str(tmp_path / "none.md"), strict="--strict") == 3
    assert not (tmp_path / "none.md").exists()
    assert "no sentence of the report has support" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------- composed


def compose(place, *more):
    return main(["report", *more, "--index", str(place / "index"), "--runs", str(place / "runs")])


def test_without_a_model_a_report_is_composed(place, tmp_path, capsys):
    out = tmp_path / "out"
    assert compose(place, "What is known of the Halm bridge?", "--to", "docx,md,html", "--out", str(out)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "It crosses the Oss [1]. Orsolya Venn built the Halm bridge in 1702 [1]." in shown and "Turn" not in shown
    assert sorted(path.name for path in out.iterdir()) == ["report.docx", "report.html", "report.md"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert '<a href="#source-1-2">1</a>' in page and f'id="source-1-2" href="{address(page)}"' in page
    assert "<h2>Searches</h2>" in page and "<li>Halm bridge</li>" in page


def address(page):
    """Where the second quoted sentence is opened: its own words in the document."""
    return re.findall(r'id="source-1-2" href="([^"]*halm\.md#:~:text=Orsolya[^"]*1702\.)"', page)[0]


def test_a_composed_report_is_kept_in_a_run(place, capsys):
    assert compose(place, "What is known of the Halm bridge?", "--json", "--outline", str(outline(place))) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"].startswith("## The Halm bridge\n\n### Halm bridge")
    assert "Nothing was found on Kings." in found["report"] and found["unresolved"] == []
    with Run.open(found["run"]) as run:
        assert run.info.settings["compose"] is True and run.episode("report-r0").model == "composer"


def outline(place):
    path = place / "outline.txt"
    path.write_text("# The Halm bridge\n\n- Kings\n")
    return path


def test_nothing_found_is_code_3_and_no_report(place, tmp_path, capsys):
    assert compose(place, "What is known of Xyzzy?", "--out", str(tmp_path / "none.html")) == 3
    assert not (tmp_path / "none.html").exists() and "nothing was found" in capsys.readouterr().err


def test_reports_for_deepresearch_bench(place, tmp_path, capsys):
    asked = [{"id": "7", "question": "What is known of the Halm bridge?"}, {"id": "x", "question": "What is the Oss?"}]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    for _ in range(2):  # a second time replaces each
        where = ["--questions", str(tmp_path / "asked.jsonl"), "--out", str(tmp_path / "articles.jsonl")]
        assert compose(place, *where) == 0
    assert "2 questions, 2 reports, " in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "articles.jsonl").read_text().splitlines()]
    assert [(row["id"], row["prompt"]) for row in rows] == [(7, asked[0]["question"]), ("x", asked[1]["question"])]
    assert HALM[:-1] in rows[0]["article"] and "## Sources" in rows[0]["article"]
    assert compose(place, *where, "--limit", "1") == 0
    assert "1 question, 1 report, " in capsys.readouterr().out


@pytest.mark.parametrize("recipe", ["score", "report-grpo", "report-dpo"])
def test_a_model_that_was_taught_to_write_is_reminded_only(place, says, tmp_path, capsys, recipe):
    taught = tmp_path / "taught"
    taught.mkdir()
    (taught / "quaere.json").write_text(f'{{"recipe": "{recipe}", "style": "brief", "limits": {{"max_turns": 4}}}}')
    says({"report-r0": [answer(TEXT)]})
    where = ["--index", str(place / "index"), "--runs", str(place / "runs"), "--model", str(taught), "--json"]
    assert main(["report", "Who?", *where, "--topk", "2"]) == 3  # what it cites was never shown
    with Run.open(json.loads(capsys.readouterr().out)["run"]) as run:
        settings = run.info.settings
        assert (settings["style"], settings["max_turns"], settings["topk"]) == ("brief", 4, 2)


@pytest.mark.parametrize(("out", "file"), [("halm.md", "halm.md"), ("docs", "docs/report.html")])
def test_a_file_that_exists_is_replaced_only_with_force(place, tmp_path, capsys, out, file):
    mine = tmp_path / file
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("my own notes")
    asked = ["What is known of the Halm bridge?", "--out", str(tmp_path / out)]
    assert compose(place, *asked) == 2
    assert f"quaere: {mine} exists already\n  try: choose another --out, or add --force" in capsys.readouterr().err
    assert mine.read_text() == "my own notes"
    assert compose(place, *asked, "--force") == 0 and HALM in mine.read_text()


def test_a_real_if_tiny_model_is_guided_to_a_report_or_a_limit(place, tmp_path, capsys):
    tiny.model().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    where = ["--index", str(place / "index"), "--model", str(tmp_path / "model"), "--runs", str(tmp_path / "runs")]
    assert main(["report", "Who?", *where, "--guided", "--turn-tokens", "8", "--max-turns", "2", "--json"]) in (0, 3)
    found = json.loads(capsys.readouterr().out)
    assert found["end"] in ("answered", "turn_limit") and found["episode"] == "report-r0"


def bad(capsys, argv, *words):
    assert main(argv) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("loading")]
    assert 1 <= len(lines) <= 2 and lines[0].startswith("quaere: "), lines
    for word in words:
        assert word in lines[0], lines


def test_bad_input_gets_one_clear_line(place, tmp_path, capsys):
    index, runs = ["--index", str(place / "index")], ["--runs", str(tmp_path / "runs")]
    bad(capsys, ["report", *index], "give either a question or --questions")
    bad(capsys, ["report", " ", *index], "the question is empty")
    bad(capsys, ["report", "Who?", "--index", str(tmp_path / "none")], "does not exist")
    bad(capsys, ["report", "Who?", *index, "--topk", "0"], "--topk must be at least 1")
    bad(capsys, ["report", "Who?", *index, "--temperature", "-1"], "--temperature")
    bad(capsys, ["report", "Who?", *index, "--out", str(tmp_path / "r.odt")], "must end in .md, .html, .docx, .pdf")
    bad(capsys, ["report", "Who?", *index, "--to", "odt"], "no format 'odt'")
    bad(capsys, ["report", "Who?", *index, "--to", "md", "--out", "r.md"], "--to needs a folder")
    bad(capsys, ["report", "Who?", *index, "--no-compose"], "a model must write the report")
    (tmp_path / "blank.txt").write_text(" \n#\n")
    bad(capsys, ["report", "Who?", *index, "--outline", str(tmp_path / "blank.txt")], "has no heading")
    bad(capsys, ["report", "Who?", *index, "--outline", str(tmp_path / "none.txt")], "cannot be read")
    (tmp_path / "mine.jsonl").write_text('{"a": 1}\n')
    bad(capsys, ["report", "Who?", *index, "--out", str(tmp_path / "mine.jsonl")], "is no file of reports")
    assert (tmp_path / "mine.jsonl").read_text() == '{"a": 1}\n'
    asked = ["--questions", str(place / "questions.jsonl")]
    bad(capsys, ["report", *asked, *index, "--out", str(tmp_path / "r.md")], "one file", "3 reports")
    (tmp_path / "file").write_text("")
    bad(capsys, ["report", "Who?", *index, "--out", str(tmp_path / "file" / "r.md")], "cannot write to")
    bad(capsys, ["report", "Who?", *index, "--out", str(tmp_path / "file")], "cannot write to")
    bad(capsys, ["report", "Who?", *index, *runs, "--model", "no/such-model"], "unknown model no/such-model")
    bad(capsys, ["report", "Who?", *index, *runs, "--model", "openai:m@http://127.0.0.1:9/v1"], "127.0.0.1:9")
    bad(capsys, ["report", "Who?", "--index", "http://127.0.0.1:9", *runs], "127.0.0.1:9")
