"""`quaere verify`, in this process: every form, what it prints and writes, and one clear line for bad input."""

import json

import pytest

import tiny
from loopback import serve_chat
from quaere.api import printing
from quaere.cli.main import main

CITED = "Orsolya Venn built the Halm bridge"
CLAIMS = [
    {
        "question": "Who built the Halm bridge?",
        "answer": "Orsolya Venn",
        "evidence": "Orsolya Venn built the Halm bridge",
    },
    {"question": "Where does the Oss rise?", "answers": ["Korrin", "Korrin hills"], "evidence": "<answer>x</answer>"},
    {"question": "When was it built?", "answer": "1702", "evidence": ""},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("verify")
    (root / "docs").mkdir()
    (root / "docs" / "halm.md").write_text("# Halm\n\nOrsolya Venn built the\nHalm bridge in 1702.\n")
    assert main(["index", str(root / "docs"), "--out", str(root / "index")]) == 0
    (root / "claims.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CLAIMS))
    tiny.model().save_pretrained(root / "model")
    tiny.tokenizer().save_pretrained(root / "model")
    return root


def verify(place, *more):
    asked = ["verify", str(place / "claims.jsonl"), "--model", str(place / "model"), "--device", "cpu"]
    return main([*asked, "--turn-tokens", "6", "--samples", "2", *more])


def in_json(place, capsys, *more):
    capsys.readouterr()
    assert verify(place, "--json", *more) == 0
    return json.loads(capsys.readouterr().out)


def test_sampled_with_an_index(place, tmp_path, capsys):
    out = tmp_path / "verified.json"
    found = in_json(place, capsys, "--index", str(place / "index"), "--out", str(out))
    assert json.loads(out.read_text()) == found
    assert (found["settings"]["form"], found["settings"]["samples"], found["settings"]["seed"]) == ("sampled", 2, 0)
    assert [item["support"]["num_samples"] for item in found["items"]] == [2, 2, 2]
    assert [item["claim"]["id"] for item in found["items"]] == ["q1", "q2", "q3"]
    assert found["items"][0]["evidence"] == [
        {"doc_id": "halm.md", "start": 8, "end": 42, "text": "Orsolya Venn built the\nHalm bridge"}
    ]
    assert found["items"][1]["evidence"] == found["items"][2]["evidence"] == []
    assert (found["score"]["num_verbatim"], found["score"]["num_without_evidence"]) == (1, 1)
    assert found["score"]["value"]["num"] == 3


def test_teacher_forced_repeats_and_a_blank_span_is_worth_exactly_nothing(place, capsys):
    found = in_json(place, capsys, "--form", "teacher_forced")
    supports = [item["support"] for item in found["items"]]
    assert all(0 < chance < 1 for one in supports for chance in (one["chance_with"], one["chance_without"]))
    assert all(one["num_samples"] == 0 for one in supports)
    assert found["items"][0]["value"] != 0
    assert found["items"][2]["value"] == 0
    assert found["items"][0]["evidence"] is found["score"]["num_verbatim"] is None
    assert in_json(place, capsys, "--form", "teacher_forced", "--seed", "5")["items"] == found["items"]


def test_the_table(place, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")  # of the terminal, not of the pipe
    monkeypatch.setattr(printing, "LOG_S", 0.0)
    assert verify(place, "--form", "teacher_forced", "--limit", "2", "--index", str(place / "index")) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].split() == ["id", "p+", "p-", "V", "question", "answer", "verbatim", "in"]
    assert lines[1].startswith("q1") and "Who built the Halm bridge?" in lines[1] and "halm.md:8-42" in lines[1]
    assert lines[2].startswith("q2") and "no document" in lines[2]
    assert any(line.startswith("mean V") for line in lines)
    assert "of 2 spans: 0 help, 2 do nothing" in shown.out
    assert "1 of 2 spans stand verbatim in a document" in shown.out
    assert "verifying: 1 of 2, mean V " in shown.err


@pytest.fixture(scope="module")
def endpoint():
    """Knows Venn where it is shown the evidence, and nothing else; the model "down" refuses."""

    def answer(body):
        if body["model"] == "down":
            return None
        return "<answer>Orsolya Venn" if "Evidence:\nOrsolya" in body["messages"][-1]["content"] else "I cannot say."

    with serve_chat(answer) as url:
        yield url


def test_hosted(place, endpoint, capsys):
    found = in_json(place, capsys, "--model", f"openai:m@{endpoint}", "--samples", "3")
    assert found["settings"]["form"] == "hosted"
    assert [item["value"] for item in found["items"]] == [1.0, 0.0, 0.0]
    assert found["items"][0]["support"] == {"chance_with": 1.0, "chance_without": 0.0, "num_samples": 3}
    assert (found["score"]["num_helping"], found["score"]["num_idle"]) == (1, 2)


def refused(capsys, *argv):
    capsys.readouterr()
    assert main(["verify", *map(str, argv)]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("loading", "1 of 1"))]
    assert lines[0].startswith("quaere: ") and len(lines) <= 2
    return lines[0]


def test_refusals(place, endpoint, tmp_path, capsys):
    file, model = place / "claims.jsonl", ("--model", place / "model")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(CLAIMS[0]) + '\n{"question": "Who?"}\n')
    assert f"{bad}, line 2: Object missing required field `evidence`" in refused(capsys, bad, *model)
    assert "cannot be read" in refused(capsys, tmp_path / "none.jsonl", *model)
    assert "--samples must be at least 1" in refused(capsys, file, *model, "--samples", 0)
    assert "--temperature must be at least 0" in refused(capsys, file, *model, "--temperature", -1)
    assert "cannot be written" in refused(capsys, file, *model, "--out", tmp_path / "a" / "b.json")
    assert "is not an index" in refused(capsys, file, *model, "--index", tmp_path)
    assert "needs an endpoint" in refused(capsys, file, *model, "--form", "hosted")
    hosted = ("--model", f"openai:down@{endpoint}", "--limit", 1)
    assert "in the hosted form, not teacher_forced" in refused(capsys, file, *hosted, "--form", "teacher_forced")
    assert "out of order" in refused(capsys, file, *hosted)
