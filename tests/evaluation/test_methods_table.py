"""`benchmarks/methods_table.py` on the committed results: its cells are what the files say."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def table():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import methods_table
    return methods_table


def rows(path):
    with gzip.open(BENCHMARKS / "results" / path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def printed(table, capsys, *words):
    """The head and the rows by name, and what is printed below them."""
    table.main(words)
    ours, published = capsys.readouterr().out.split("Published")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ours.splitlines() if line.startswith("| ")]
    return lines[0], {name: rest for name, *rest in lines[1:]}, published


def test_every_method_is_scored_on_the_reporting_questions(table, capsys):
    head, cells, published = printed(table, capsys)
    assert head == ["method", "EM %, dev (2,032)", "EM %, docs (169)", "searches", "minutes", "labels", "terms"]
    assert list(cells) == [method.name for method in table.METHODS]

    asked = [row for row in rows("untrained/rag-dev.items.jsonl.gz") if is_reported(row["id"])]
    assert len(asked) == 2_032
    assert cells["rag"][0].startswith(f"{100 * sum(row['exact_match'] for row in asked) / len(asked):.1f} [")
    seeds = [rows(f"same-start/direct-{seed}.items.jsonl.gz") for seed in (0, 1, 2)]
    rights = [row["exact_match"] for seed in seeds for row in seed]
    reinforced = cells["reinforced on written Wikipedia questions"]
    assert len(rights) == 3 * 2_032 and reinforced[0].startswith(f"{100 * sum(rights) / len(rights):.1f} [")
    assert reinforced[0].endswith("3 seeds") and reinforced[1] == "" and reinforced[4:] == ["no", "words"]
    with gzip.open(BENCHMARKS / "results/labelled/labelled-1.metrics.json.gz", "rt") as stream:
        seconds = sum(value for _, name, value in json.load(stream) if name == "step/seconds")
    assert cells["reinforced on labelled questions, 78 steps"][3:5] == [f"{seconds / 60:.1f}", "5,323"]
    assert "of other models" in published and "Search-R1 | 32.7" in published


def test_the_page_of_results_has_the_figures_of_the_command(table, capsys):
    """They are copied by hand, in another order and under shorter names."""
    _, cells, _ = printed(table, capsys)
    page = (BENCHMARKS.parent / "docs" / "results.md").read_text(encoding="utf-8")
    shown = page[page.index("| EM | Wikipedia |") : page.index('"(1, 3)"')].replace("*", "")
    figure = re.compile(r"\d+\.\d \[.*?\]")
    rows = list(cells.values())
    assert sorted(figure.findall(shown)) == sorted(figure.findall(" ".join(f"{dev} {docs}" for dev, docs, *_ in rows)))
    costs = [[cell.strip() for cell in line.split("|")[-3:-1]] for line in shown.splitlines() if figure.search(line)]
    (_, *apart) = costs  # the first line has both methods that do not search
    assert costs[0] == ["0", ""] and sorted(apart) == sorted([row[2], row[3]] for row in rows[2:])


def is_reported(name):
    return hashlib.sha256(name.encode()).hexdigest()[0] >= "5"


def test_a_row_that_was_asked_fewer_questions_says_so(table, capsys):
    _, cells, _ = printed(table, capsys)
    fewer = {name for name, row in cells.items() if "of" in f"{row[0]} {row[1]}".split()}
    assert fewer == {"the same, 2,115 questions"} and cells["the same, 2,115 questions"][0].endswith(", of 1,000")

    head, cells, _ = printed(table, capsys, "--digits", "0-f")
    assert head[1:3] == ["EM %, dev (2,917)", "EM %, docs (250)"]
    marked = {name for name, row in cells.items() if row[0].endswith((", of 2,032", ", of 1,000"))}
    assert marked == {one.name for one in table.METHODS if one.dev and not one.dev.startswith("untrained/")}


def test_digits_that_are_none_are_refused(table, capsys):
    with pytest.raises(SystemExit, match="2"):
        table.main(["--digits", "5-x"])
    assert "hex digits" in capsys.readouterr().err


def test_a_method_that_was_asked_none_of_the_questions_has_no_figures(table, capsys):
    head, cells, _ = printed(table, capsys, "--digits", "0-4")
    assert head[1] == "EM %, dev (885)" and cells["rag"][0] and cells["form only"][:3] == ["", "", ""]
