"""`benchmarks/methods_table.py` on the committed results: its cells are what the files say."""

import gzip
import json
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


def test_every_method_is_scored_on_the_questions_that_all_were_asked(table, capsys):
    table.main([])
    ours, published = capsys.readouterr().out.split("Published")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ours.splitlines() if line.startswith("| ")]
    assert lines[0] == ["method", "EM %, dev (1,000)", "EM %, docs (250)", "searches", "minutes", "labels"]
    cells = {name: rest for name, *rest in lines[1:]}
    assert list(cells) == [method.name for method in table.METHODS]

    asked = rows("untrained/rag-dev.items.jsonl.gz")
    assert cells["rag"][0].startswith(f"{100 * sum(row['exact_match'] for row in asked) / len(asked):.1f} [")
    ids = {row["id"] for row in asked}
    seeds = [rows(f"same-start/direct-{seed}.items.jsonl.gz") for seed in (0, 1, 2)]
    rights = [row["exact_match"] for seed in seeds for row in seed if row["id"] in ids]
    reinforced = cells["reinforced on written Wikipedia questions"]
    assert len(rights) == 3_000 and reinforced[0].startswith(f"{sum(rights) / 30:.1f} [")
    assert reinforced[0].endswith("3 seeds") and reinforced[1] == "" and reinforced[4] == "no"
    with gzip.open(BENCHMARKS / "results/labelled/labelled-1.metrics.json.gz", "rt") as stream:
        seconds = sum(value for _, name, value in json.load(stream) if name == "step/seconds")
    assert cells["reinforced on labelled questions, 78 steps"][3:] == [f"{seconds / 60:.1f}", "5,323"]
    assert "of other models" in published and "Search-R1 | 32.7" in published
