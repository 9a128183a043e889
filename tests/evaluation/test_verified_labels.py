"""`benchmarks/verified_labels.py`: claims of the labelled questions, and values beside labels, by hand."""

import json
import math
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KEY = {str(number): {"arm": "passed", "id": name} for number, name in enumerate(["a#0:1", "b#0:1|c#0:1", "d#0:1"], 1)}


@pytest.fixture
def verified(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import verified_labels

    return verified_labels


def test_the_chance_that_a_good_one_is_above_another(verified):
    found = [
        verified.Labelled("chain", "good", 1.0, 0.0),
        verified.Labelled("chain", "wrong", 0.5, 0.0),
        verified.Labelled("one fact", "good", 0.5, 0.0),
        verified.Labelled("one fact", "unclear", 0.75, 0.0),
    ]
    assert verified.separation(found, by_kind=False) == (1 + 1 + 0.5 + 0) / 4
    assert verified.separation(found, by_kind=True) == (1 + 0) / 2
    for by_kind in (False, True):  # one question in each group: every draw is the same
        chance = verified.separation(found, by_kind=by_kind)
        assert verified.resample(found, by_kind=by_kind) == (chance, chance)
    low, high = verified.resample([*found, verified.Labelled("chain", "good", 0.0, 0.5)], by_kind=True)
    assert low < high
    assert math.isnan(verified.separation(found[:1], by_kind=False))


def test_claims_are_of_the_questions_in_the_key(verified, tmp_path, capsys):
    rows = [{"id": name, "question": f"{name}?", "answers": ["x"], "span": f"{name} is x."} for name in ("z", "d#0:1")]
    (tmp_path / "kept.json").write_text(json.dumps(rows))
    (tmp_path / "key.json").write_text(json.dumps({"3": KEY["3"]}))
    words = [str(tmp_path / name) for name in ("kept.json", "key.json", "claims.jsonl")]
    verified.main(["claims", words[0], "--key", words[1], "--out", words[2]])
    assert "1 claims" in capsys.readouterr().out
    claim = {"id": "d#0:1", "question": "d#0:1?", "answers": ["x"], "evidence": "d#0:1 is x."}
    assert [json.loads(line) for line in (tmp_path / "claims.jsonl").read_text().splitlines()] == [claim]


def test_values_stand_beside_their_labels(verified, tmp_path, capsys):
    chances = [(1.0, 0.2), (0.4, 0.4), (0.6, 0.0)]
    items = [
        {"claim": {"id": entry["id"]}, "support": {"chance_with": with_it, "chance_without": without}}
        for entry, (with_it, without) in zip(KEY.values(), chances, strict=True)
    ]
    (tmp_path / "values.json").write_text(json.dumps({"items": items}))
    (tmp_path / "labels.tsv").write_text("label\tnumber\ngood\t1\nwrong\t2\nunclear\t3\n")
    (tmp_path / "key.json").write_text(json.dumps(KEY))
    paths = {name: str(tmp_path / name) for name in ("values.json", "labels.tsv", "key.json")}
    verified.main(["table", paths["values.json"], "--labels", paths["labels.tsv"], "--key", paths["key.json"]])
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("|")][2:]
    assert rows == [
        ["comparison", "other", "1", "0.40", "0.40", "0.00"],
        ["one fact", "good", "1", "1.00", "0.20", "0.80"],
        ["one fact", "other", "1", "0.60", "0.00", "0.60"],
        ["all", "good", "1", "1.00", "0.20", "0.80"],
        ["all", "other", "2", "0.50", "0.20", "0.30"],
    ]
    assert "good above another of any kind: 1.00 [1.00, 1.00]" in said
    assert "good above another of its kind: 1.00 [1.00, 1.00]" in said
