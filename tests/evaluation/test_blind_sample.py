"""`benchmarks/blind_sample.py`: a sheet that hides the arm, and labels counted by hand."""

import csv
import json
from pathlib import Path

import pytest

from quaere.errors import BadInput

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def sample(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import blind_sample

    return blind_sample


@pytest.fixture
def files(tmp_path):
    """Two arms of twenty questions each."""
    paths = []
    for arm in "ab":
        path = tmp_path / f"{arm}.jsonl"
        rows = [{"id": f"{arm}{n}", "question": f"Who\tis {arm}{n}?", "answers": ["x", "y"]} for n in range(20)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.append(path)
    return paths


def run(sample, tmp_path, files, *more):
    sample.main([*map(str, files), "--out", str(tmp_path / "s.tsv"), "--key", str(tmp_path / "k.json"), *more])
    with (tmp_path / "s.tsv").open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    return rows, json.loads((tmp_path / "k.json").read_text())


def label(tmp_path, rows, labels):
    with (tmp_path / "s.tsv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys(), delimiter="\t")
        writer.writeheader()
        writer.writerows(row | {"label": text} for row, text in zip(rows, labels, strict=True))


def test_the_sheet_holds_equal_shares_in_mixed_order_and_names_no_arm(sample, tmp_path, files):
    rows, key = run(sample, tmp_path, files, "--num", "21")
    arms = [key[row["number"]]["arm"] for row in rows]
    assert (arms.count(str(files[0])), arms.count(str(files[1]))) == (11, 10)
    assert arms != sorted(arms)
    assert {row["label"] for row in rows} == {""} and rows[0]["answers"] == "x | y"
    assert [f"Who is {key[row['number']]['id']}?" for row in rows] == [row["question"] for row in rows]
    assert len({row["question"] for row in rows}) == 21
    assert str(files[0]) not in (tmp_path / "s.tsv").read_text()


def test_the_seed_decides(sample, files):
    drawn = [[question.id for _, question in sample.draw(files, 10, seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_labels_are_counted_for_each_arm(sample, tmp_path, files, capsys):
    rows, key = run(sample, tmp_path, files, "--num", "20")
    first = str(files[0])
    texts, seen = [], {"good": 0}
    for row in rows:
        is_first = key[row["number"]]["arm"] == first
        seen["good"] += is_first
        texts.append("good" if is_first and seen["good"] <= 8 else "Wrong " if is_first else "unclear")
    label(tmp_path, rows, texts)
    capsys.readouterr()
    sample.main(["--count", str(tmp_path / "s.tsv"), "--key", str(tmp_path / "k.json")])
    shown = capsys.readouterr().out
    assert "0.800 [0.490, 0.943]" in shown and "0.200 [0.057, 0.510]" in shown  # of ten
    assert "1.000 [0.722, 1.000]" in shown and "0.000 [0.000, 0.278]" in shown
    counts = sample.count_labels(tmp_path / "s.tsv", tmp_path / "k.json")
    assert counts == {first: {"good": 8, "wrong": 2}, str(files[1]): {"unclear": 10}}


def test_what_cannot_be_counted_or_drawn_is_said(sample, tmp_path, files):
    with pytest.raises(BadInput, match="20 questions with answers, and 30 are wanted"):
        sample.draw(files, 60, 0)
    rows, _ = run(sample, tmp_path, files, "--num", "4")
    with pytest.raises(BadInput, match="left alone"):
        run(sample, tmp_path, files, "--num", "4")
    with pytest.raises(BadInput, match="the label is good, unclear, wrong, not ''"):
        sample.count_labels(tmp_path / "s.tsv", tmp_path / "k.json")
    label(tmp_path, rows[:3], ["good"] * 3)
    with pytest.raises(BadInput, match="does not hold the questions"):
        sample.count_labels(tmp_path / "s.tsv", tmp_path / "k.json")
