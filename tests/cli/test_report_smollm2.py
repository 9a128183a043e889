"""The embedded model writes reports on a small world: slow, and weak, but what it cites is held against what it saw."""

import json
import re
from pathlib import Path

import pytest

from quaere.cli.main import main
from quaere.runs import Run

pytestmark = [pytest.mark.model, pytest.mark.slow]


# Passages of a sentence or two: it copies one to its end before it goes on to the next.
SHORT = ["--chunk-words", "25", "--row-words", "25"]


HOW = ["--guided", "--no-strict"]  # what it writes itself, and all of it


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    assert main(["world", "--seed", "7", "--articles", "200", "--questions", "5", "--out", str(root / "world")]) == 0
    assert main(["index", str(root / "world" / "corpus.jsonl"), "--out", str(root / "index"), *SHORT]) == 0
    return root


def test_five_reports_cite_and_what_they_cite_is_told_apart(place, capsys):
    asked = ["--questions", str(place / "world" / "questions.jsonl"), "--limit", "5"]
    where = ["--index", str(place / "index"), "--runs", str(place / "runs"), "--out", str(place / "reports")]
    assert main(["report", *asked, *where, "--model", "smollm2-135m-plain", "--dtype", "float32", "--json", *HOW]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert len(found) == 5
    (folder,) = (place / "runs").iterdir()
    with Run.open(folder) as run:
        last_turns = [episode.turns[-1].text for episode in run.episodes()]
    # The first citation of a guided report is ours, not the model's: only what it wrote itself counts here. It often
    # goes on until it is cut off; then its whole sentences are the report.
    num_own = sum(len(re.findall(r"\[\d+\]", text)) - 1 for text in last_turns)
    written = [row for row in found if row["report"]]
    print(f"{len(written)} reports, {num_own} citations of its own")
    assert num_own >= 3 and len(written) >= 4
    for row in written:
        known = {source["number"] for source in row["sources"]}
        assert row["unresolved"] == [number for number in row["citations"] if number not in known]
        for file in row["files"]:
            page = Path(file).read_text(encoding="utf-8")
            assert len(re.findall("no such source", page)) == len(row["unresolved"])
            assert ("Unresolved citations" in page) == bool(row["unresolved"])
