"""`benchmarks/blind_sample.py`: a sheet that hides the arm, and labels counted by hand."""

import csv
import json
from pathlib import Path

import pytest

from quaere.errors import BadInput
from quaere.search.index_build import build_index

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
    drawn = [[item.question.id for item in sample.draw(files, 10, seed)] for seed in (1, 1, 2)]
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


# ------------------------------------------------------------------------------------------------- one file, with pages

NAMES = ("Orsolya Venn", "Marta Oleen", "Ada Brandt", "Jonna Ferrin", "Per Sallis", "Ilse Kron")
TEXT = "Mill {0} was built by {1} for the town. In 1702 it was sold to {2} at a fair for 300 coins."


@pytest.fixture
def own(tmp_path):
    """Thirty mills with a question each, some questions that no wrong answer is found for, and the index."""
    pages = {f"m{n}": TEXT.format(n, NAMES[n % 6], NAMES[(n + 1) % 6]) for n in range(30)}
    (tmp_path / "pages.jsonl").write_text(
        "".join(json.dumps({"id": name, "title": "", "text": text}) + "\n" for name, text in pages.items())
    )
    build_index(tmp_path / "pages.jsonl", tmp_path / "index")

    def row(number, question, answer, num_facts=1):
        text = pages[f"m{number}"].split(". ")[0] + "."
        span = {"doc_id": f"m{number}", "start": 0, "end": len(text), "text": text}
        return {"question": question, "answers": [answer], "facts": num_facts, "evidence": [span] * num_facts}

    rows = [row(n, f"Who built mill {n}?", NAMES[n % 6]) | {"id": f"single{n}"} for n in range(30)]
    rows += [row(n, f"Who built it, {NAMES[n % 6]} or Bo?", NAMES[n % 6]) | {"id": f"choice{n}"} for n in range(10)]
    rows += [row(n, f"Was mill {n} built?", "yes") | {"id": f"yes{n}"} for n in range(10)]
    rows += [row(n, f"Who built mill {n} then?", NAMES[n % 6], 2) | {"id": f"chain{n}"} for n in range(10)]
    rows += [row(n, f"Who built it, not {NAMES[(n + 1) % 6]}?", NAMES[n % 6]) | {"id": f"told{n}"} for n in range(10)]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_text_sheet(path):
    blocks = path.read_text().split("### ")[1:]
    return {number: rest for number, _, rest in (block.partition("\n") for block in blocks)}


def draw_planted(sample, tmp_path, own, *more):
    out, key = tmp_path / "s.txt", tmp_path / "k.json"
    words = [str(own), "--index", str(tmp_path / "index"), "--out", str(out), "--key", str(key), *more]
    sample.main(words)
    return read_text_sheet(out), json.loads(key.read_text())


def test_planted_answers_are_other_spans_of_the_same_kind_and_passage(sample, tmp_path, own):
    blocks, key = draw_planted(sample, tmp_path, own, "--num", "40", "--planted", "8")
    assert list(blocks) == list(key) == [str(number) for number in range(1, 49)]
    planted = {number for number, entry in key.items() if entry["planted"]}
    assert len(planted) == 8 and planted != set(list(blocks)[40:])  # they stand among the others
    assert len({entry["id"] for entry in key.values()}) == 48
    asked = {row["id"]: row for row in map(json.loads, own.read_text().splitlines())}
    for number, block in blocks.items():
        row = asked[key[number]["id"]]
        question, answer, *passages = block.strip().split("\n")
        page = int(row["evidence"][0]["doc_id"].removeprefix("m"))
        text = TEXT.format(page, NAMES[page % 6], NAMES[(page + 1) % 6])
        assert question == f"QUESTION: {row['question']}"
        assert passages == [f"PASSAGE: {text}"] * row["facts"]
        if number in planted:
            assert row["id"].startswith("single") and answer == f"ANSWER: {NAMES[(page + 1) % 6]}"
        else:
            assert answer == f"ANSWER: {row['answers'][0]}"


def test_what_was_planted_is_counted_by_itself(sample, tmp_path, own, capsys):
    _, key = draw_planted(sample, tmp_path, own, "--num", "10", "--planted", "5")
    seen = {True: 0, False: 0}
    lines = ["number\tlabel\n"]
    for number, entry in key.items():
        seen[entry["planted"]] += 1
        told = seen[entry["planted"]]
        label = ("wrong" if told <= 4 else "good") if entry["planted"] else "good" if told <= 8 else "unclear"
        lines.append(f"{number}\t{label}\n")
    (tmp_path / "labels.tsv").write_text("".join(lines))
    capsys.readouterr()
    sample.main(["--count", str(tmp_path / "labels.tsv"), "--key", str(tmp_path / "k.json")])
    shown = capsys.readouterr().out
    (row,) = [line for line in shown.splitlines() if str(own) in line]
    cells = ("10", "0.800 [0.490, 0.943]", "0.200 [0.057, 0.510]", "0.000 [0.000, 0.278]")  # good, unclear, wrong
    assert [cell.strip() for cell in row.strip("| ").split("|")][1:] == list(cells)
    assert "planted: 4 of 5 called wrong, 0.800 [0.376, 0.964]" in shown


def test_one_file_without_an_index_is_a_table(sample, tmp_path, files):
    rows, key = run(sample, tmp_path, files[:1], "--num", "6")
    assert len(rows) == 6 and {entry["planted"] for entry in key.values()} == {False}


def test_what_cannot_be_planted_is_said(sample, tmp_path, own):
    with pytest.raises(BadInput, match=r"^(29|30) more questions can be given a wrong answer, and 31"):
        draw_planted(sample, tmp_path, own, "--num", "1", "--planted", "31")
    with pytest.raises(BadInput, match="--planted needs the --index"):
        sample.main([str(own), "--planted", "2", "--out", str(tmp_path / "s"), "--key", str(tmp_path / "k")])
    stray = {
        "question": "Who?",
        "answers": ["Venn"],
        "evidence": [{"doc_id": "m1", "start": 9000, "end": 9010, "text": ""}],
    }
    (tmp_path / "stray.jsonl").write_text(json.dumps(stray) + "\n")
    with pytest.raises(BadInput, match="no passage with the evidence of q1, in m1"):
        draw_planted(sample, tmp_path, tmp_path / "stray.jsonl", "--num", "1")
    assert not (tmp_path / "k.json").exists() and not (tmp_path / "s.txt").exists()
