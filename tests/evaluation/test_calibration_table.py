"""`benchmarks/calibration.py`: the scores of searches beside their values, by question set."""

import gzip
import json
import sys
from pathlib import Path

import pytest
from msgspec import structs

from evaluated import QUESTION, answer, episode, evaluate, passage, search
from quaere.evaluation.qa.items import Item
from quaere.records import Question
from quaere.runs import Run

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results/judges"
GOLD = passage("Marta Oleen led the guild.", "guild", title="Ropers")
TITLED = passage("A bridge.", "halm", title="Halm bridge")
TOLD = passage("Orsolya Venn built it.", "venn")
# In the first set the documents are known: one of them has no answer. In the other the answer alone is.
PROVEN = Question("p", "Who built the Halm bridge?", ("Orsolya Venn",), set="proven", gold_ids=("guild", "venn"))
PLAIN = structs.replace(QUESTION, id="s", set="plain")


@pytest.fixture
def calibration(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import calibration

    return calibration


@pytest.fixture
def run(tmp_path):
    """A stored run of two episodes."""
    played = [
        episode(search(TOLD), evaluate(9), search(TITLED), evaluate(3), search(GOLD), evaluate(6), question=PROVEN),
        episode(search(TITLED), evaluate(8), search(TOLD), evaluate(2), answer("nobody"), question=PLAIN),
    ]
    with Run.start(tmp_path / "runs", "eval", {}) as run:
        for number, one in enumerate(played):
            run.add_episode(structs.replace(one, id=f"e{number}"), {})
        return run.path


def test_rows_by_hand(calibration, run):
    rows = calibration.read_rows(run)
    found = [(row.set, row.number, row.score, row.by_evidence, row.by_answers, row.titled) for row in rows]
    assert found == [
        ("proven", 0, 9.0, 8, 10, False),
        ("proven", 1, 3.0, 1, 1, True),
        ("proven", 2, 6.0, 10, 1, False),
        ("plain", 0, 8.0, None, 1, True),
        ("plain", 1, 2.0, None, 10, False),
    ]
    assert [row.good("evidence") for row in rows] == [True, False, True, False, True]
    assert [row.good("answers") for row in rows] == [True, False, False, False, True]


def test_the_table_has_the_ceiling_of_a_perfect_judge(calibration, run, tmp_path, monkeypatch, capsys):
    def table(source, *options):
        monkeypatch.setattr(sys, "argv", ["", str(source), *options])
        calibration.main()
        lines = capsys.readouterr().out.splitlines()
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[3:]]
        return {name: figures for name, *figures in cells}

    by_evidence = table(run, "--rows", str(tmp_path / "rows.jsonl"))
    assert list(by_evidence) == ["plain", "proven", "all"]
    count, good, score, auroc, titles, same_turn, _, margin, ceiling, _ = by_evidence["proven"]
    assert (count, good, score, auroc.split()[0]) == ("3", "0.67", "6.0", "1.000")
    assert same_turn == margin == "-"  # one episode has no two searches of equal number
    assert (titles.split()[0], ceiling) == ("0.000", "1.000")
    assert by_evidence["plain"][3].split()[0] == "0.000" and by_evidence["plain"][8] == "-"
    # By answers, a perfect judge of the evidence has one of two pairs right: it scores the last search highest.
    by_answers = table(tmp_path / "rows.jsonl", "--labels", "answers")
    assert by_answers["proven"][8] == "0.500"
    assert by_answers["all"][0] == "5"


def test_the_margin_over_the_title_rule_is_within_turns_and_paired(calibration):
    def row(question, number, score, value, titled):
        return calibration.Row("r", question, "", number, score, value, None, titled)

    # First searches: the scores have all four pairs right, the titles one, two of them half. Second ones are all bad.
    rows = [
        row("a", 0, 9.0, 10, False),
        row("b", 0, 1.0, 1, True),
        row("c", 0, 8.0, 8, True),
        row("d", 0, 2.0, 1, False),
    ]
    rows += [row(name, 1, 10.0, 1, True) for name in "abcd"]
    *_, auroc, titles, same_turn, title_same_turn, margin, ceiling, _ = calibration.describe("all", rows, "evidence")
    figures = [cell.split()[0] for cell in (auroc, titles, same_turn, title_same_turn, margin)]
    assert figures == ["0.333", "0.333", "1.000", "0.500", "0.500"]
    assert margin.split(maxsplit=1)[1] == "[0.000, 1.000]" and ceiling == "1.000"


@pytest.mark.parametrize("name", ["cold", "shuffled", "world", "scores-only"])
def test_of_the_stored_searches_one_an_episode_is_good_by_answers(name):
    stored = gzip.decompress((RESULTS / f"{name}.scores.jsonl.gz").read_bytes())
    rows = [json.loads(line) for line in stored.splitlines()]
    good = [(row["run"], row["question"]) for row in rows if row["by_answers"] == 10]
    assert len(good) == len(set(good)) > 50


def test_the_answers_of_one_evaluation_go_with_one_source(calibration, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", "one.jsonl", "two.jsonl", "--items", "one.items.jsonl.gz"])
    with pytest.raises(SystemExit):
        calibration.main()
    assert "name one source" in capsys.readouterr().err


def test_refusals_count_searches_of_a_least_score(calibration):
    """Two answers without evidence, one after a high score; two right ones, one after a low score; and a hidden one."""

    def asked(question, exact, *scored):
        rows = [
            calibration.Row("r", question, "", n, score, value, None, False) for n, (score, value) in enumerate(scored)
        ]
        return rows, Item(question, "", "x", exact, exact, "answered", 1, len(rows), 1)

    played = [
        asked("a", 0.0, (1.0, 1), (2.0, 1)),
        asked("b", 0.0, (9.0, 1)),
        asked("c", 1.0, (2.0, 1), (9.0, 10)),
        asked("d", 1.0, (2.0, 8)),
        asked("c-hidden", 0.0, (2.0, None)),
    ]
    rows = [row for some, _ in played for row in some]
    table = calibration.refusals(
        rows, [*(item for _, item in played), Item("e", "", "x", 1.0, 1.0, "answered", 1, 0, 1)]
    )
    lines = [[cell.split(":")[0].strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert lines[0] == ["least score", "hidden, refused, of 1", "without evidence, refused, of 2", "right, lost, of 2"]
    assert lines[2:] == [["9", "1", "1", "1"]]  # 2 is the lowest best score: it refuses none
