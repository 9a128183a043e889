"""`benchmarks/results_table.py` on small files whose figures are computed by hand."""

import hashlib
from pathlib import Path

import pytest

from quaere.evaluation.qa.items import Item, hash_text, write_items

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import results_table

    return results_table


def item(name, right, **more):
    more = dict(set="hotpot", answer="Venn", f1=right, end="answered", num_turns=2, num_searches=1, num_tokens=9) | more
    return Item(name, hash_text(name), exact_match=right, **more)


def write(folder, name, rights, **more):
    """A file of questions q0, q1, ...: the first half are of hotpot, the others of nq."""
    half = len(rights) // 2
    found = [
        item(f"q{number}", right, **({"set": "hotpot" if number < half else "nq"} | more))
        for number, right in enumerate(rights)
    ]
    write_items(found, folder / f"{name}.items.jsonl.gz")
    return str(folder / f"{name}.items.jsonl.gz")


def cells(text):
    """The rows of every Markdown table in a text, by their first cell; of several tables a list of them."""
    tables, rows = [], None
    for line in text.splitlines():
        if not line.startswith("|"):
            rows = None
            continue
        found = [cell.strip() for cell in line.strip("|").split("|")]
        if rows is None:
            rows = {}
            tables.append((found, rows))
        elif not found[0].startswith("-"):
            rows[found[0]] = dict(zip(tables[-1][0], found, strict=True))
    return [rows for _, rows in tables]


def run(table, capsys, *argv):
    table.main(list(argv))
    return capsys.readouterr().out


def test_two_arms_by_hand(table, tmp_path, capsys):
    base = write(tmp_path, "base", [1, 0, 0, 0])
    ours = write(tmp_path, "ours", [1, 1, 1, 0], num_searches=3)
    said = run(table, capsys, "--arm", "base", base, "--arm", "ours", ours)
    assert "all: 4 questions\n" in said
    (rows,) = cells(said)
    assert list(rows) == ["base", "ours"]
    assert rows["base"]["EM %"].startswith("25.0 [") and rows["ours"]["EM %"].startswith("75.0 [")
    assert (rows["base"]["EM %, hotpot"], rows["base"]["EM %, nq"]) == ("50.0", "0.0")
    assert (rows["ours"]["EM %, hotpot"], rows["ours"]["EM %, nq"]) == ("100.0", "50.0")
    assert (rows["base"]["searches"], rows["ours"]["searches"]) == ("1.00", "3.00")
    assert rows["base"]["EM - base"] == ""
    # Differences 0, 1, 1, 0: mean 1/2, and Student's interval begins at 0.5 - 3.182 * sqrt(1 / 3 / 4). With the
    # imagined pairs the variance is (2 + 1) / 5 - (2 / 5) ** 2 = 0.44, and 2.80159 * sqrt(0.44 / 4) = 0.929.
    assert rows["ours"]["EM - base"] == "+50.0 [-41.9, +100.0] (92.9)"


def test_seeds_stand_alone_and_as_their_mean(table, tmp_path, capsys):
    base = write(tmp_path, "base", [0, 0, 0, 0])
    seeds = [write(tmp_path, f"s{number}", rights) for number, rights in enumerate(([1, 1, 0, 0], [1, 0, 0, 0]))]
    (rows,) = cells(run(table, capsys, "--arm", "base", base, "--arm", "ours", *seeds))
    assert list(rows) == ["base", "ours, seed 0", "ours, seed 1", "ours, mean of 2"]
    assert rows["ours, seed 0"]["EM %"].startswith("50.0 [")
    assert rows["ours, seed 1"]["EM %"].startswith("25.0 [")
    mean = rows["ours, mean of 2"]
    assert mean["EM %"].startswith("37.5 [") and mean["EM %, hotpot"] == "75.0"
    # Means over seeds 1, 1/2, 0, 0: variance (1.25 + 1) / 5 - (1.5 / 5) ** 2 = 0.36, 2.80159 * sqrt(0.36 / 4) = 0.840.
    # Student over 1/2 and 1/4: 37.5 -+ 12.706 * 12.5.
    assert mean["EM - base"].startswith("+37.5 [") and mean["EM - base"].endswith("] (84.0), t [-121.3, +196.3]")


def test_from_the_same_start_each_seed_is_compared_with_its_own(table, tmp_path, capsys):
    starts = [write(tmp_path, f"b{number}", rights) for number, rights in enumerate(([0, 0, 0, 0], [1, 1, 0, 0]))]
    seeds = [write(tmp_path, f"s{number}", rights) for number, rights in enumerate(([1, 0, 0, 0], [1, 1, 1, 0]))]
    argv = ["--arm", "base", *starts, "--arm", "ours", *seeds]
    apart, together = (cells(run(table, capsys, *argv, *more))[0] for more in ([], ["--same-start"]))
    # Against the mean of the starts, 1/4, and against their own, 0 and 1/2.
    assert [rows["ours, seed 1"]["EM - base"][:5] for rows in (apart, together)] == ["+50.0", "+25.0"]
    assert together["ours, seed 0"]["EM - base"].startswith("+25.0 [")
    # Both seeds gained as much: no spread over seeds.
    assert together["ours, mean of 2"]["EM - base"].endswith("t [+25.0, +25.0]")
    assert apart["ours, mean of 2"]["EM - base"].startswith("+25.0 [")
    assert not apart["ours, mean of 2"]["EM - base"].endswith("t [+25.0, +25.0]")


def test_by_kind_by_hand(table, tmp_path, capsys):
    """Of eleven questions eight are yes/no, where a constant turns over; of the three others one is gained."""

    def file(name, taken, rights):
        found = [
            item(f"y{n}", float(taken == "yes"), kind="yes/no", right_option="yes", option=taken) for n in range(8)
        ]
        found += [item(f"n{n}", right, kind="name", searches_needed=2 - n % 2) for n, right in enumerate(rights)]
        write_items(found, tmp_path / f"{name}.items.jsonl.gz")
        return str(tmp_path / f"{name}.items.jsonl.gz")

    base, ours = file("base", "no", [0, 0, 1]), file("ours", "yes", [1, 0, 1])
    said = run(table, capsys, "--arm", "base", base, "--arm", "ours", ours, "--where", "kind=name")
    whole, kinds, closed, part, _ = cells(said)
    assert closed["yes/no"] == {
        "closed": "yes/no",
        "questions": "8",
        "base: takes an option %": "100.0",
        "base: right %": "0.0",
        "ours: takes an option %": "100.0",
        "ours: right %": "100.0",
    }
    assert whole["ours"]["EM - base"].startswith("+81.8 [")  # 9 of 11
    assert list(kinds) == [
        *("yes/no", "name", "neither yes/no nor choice"),
        *("searches needed: unknown", "searches needed: 1", "searches needed: 2"),
    ]
    assert kinds["yes/no"]["questions"] == "8" and kinds["yes/no"]["points"] == "+72.7"  # 8 of 11
    assert kinds["name"]["ours - base"].startswith("+33.3 [") and kinds["name"]["points"] == "+9.1"
    assert kinds["neither yes/no nor choice"] == kinds["name"] | {"EM %": "neither yes/no nor choice"}
    assert (kinds["searches needed: 2"]["base"], kinds["searches needed: 2"]["ours"]) == ("50.0", "100.0")
    assert part["ours"]["EM %"].startswith("66.7 [")
    assert said.count('- base says "no" to 8 of 8 yes/no questions of hotpot; "no" is right for 0') == 1
    assert 'ours says "yes"' not in said  # which is right


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["eve-1", "eve-3"], ["seed 1", "seed 3"]),  # the numbers the files end with
        (["first", "second"], ["seed 0", "seed 1"]),  # none
        (["a-2", "b-2"], ["seed 0", "seed 1"]),  # the same
        (["a-2", "b"], ["seed 0", "seed 1"]),  # one has none
    ],
)
def test_seeds_are_called_by_their_files(table, tmp_path, capsys, names, labels):
    files = [write(tmp_path, name, [1, 0]) for name in names]
    (rows,) = cells(run(table, capsys, "--arm", "ours", *files))
    assert list(rows) == [*(f"ours, {label}" for label in labels), "ours, mean of 2"]


def test_a_baseline_of_several_seeds_is_its_mean(table, tmp_path, capsys):
    ours = write(tmp_path, "ours", [1, 1])
    seeds = [write(tmp_path, "s0", [1, 0]), write(tmp_path, "s1", [0, 1])]
    (rows,) = cells(run(table, capsys, "--arm", "ours", ours, "--arm", "warm", *seeds, "--baseline", "warm"))
    # Two equal gains of 1/2: a share of 1 - sqrt(0.025) = 0.842 of all questions may have others.
    assert rows["ours"]["EM - warm"].startswith("+50.0 [-76.3, +92.1]")
    assert rows["warm, seed 0"]["EM - warm"] == rows["warm, mean of 2"]["EM - warm"] == ""


def test_unanswered_and_f1(table, tmp_path, capsys):
    base = write(tmp_path, "base", [0, 0], f1=0.25)
    ours = write(tmp_path, "ours", [0, 0], f1=0.75, end="turn_limit", answer=None)
    (rows,) = cells(run(table, capsys, "--arm", "base", base, "--arm", "ours", ours))
    assert (rows["base"]["unanswered %"], rows["ours"]["unanswered %"]) == ("0.0", "100.0")
    assert rows["ours"]["F1 %"] == "75.0 [75.0, 75.0]"
    assert rows["ours"]["F1 - base"].startswith("+50.0 [-76.3, +92.1]")


def test_evidence_by_hand(table, tmp_path, capsys):
    """Of four questions the first three have gold: gold joint is EM and gold, over those three."""

    def file(name, rights, golds, verbatim):
        found = [
            item(f"q{number}", right, present=True, verbatim=verbatim, supported=True, gold=gold)
            for number, (right, gold) in enumerate(zip(rights, golds, strict=True))
        ]
        write_items(found, tmp_path / f"{name}.items.jsonl.gz")
        return str(tmp_path / f"{name}.items.jsonl.gz")

    base = file("base", [1, 0, 0, 1], [False, True, False, None], False)
    ours = file("ours", [1, 1, 0, 1], [True, True, True, None], True)
    (rows,) = cells(run(table, capsys, "--arm", "base", base, "--arm", "ours", ours))
    assert [rows[arm]["gold joint % of 3"].split()[0] for arm in rows] == ["0.0", "66.7"]
    assert rows["ours"]["gold joint - base"].startswith("+66.7 [") and rows["base"]["gold joint - base"] == ""
    assert rows["ours"]["verbatim %"] == "100.0 [51.0, 100.0]"  # Wilson's, from 4 / (4 + 3.84) on
    assert rows["ours"]["joint - base"].startswith("+25.0 [")
    assert rows["ours"]["verbatim - base"].startswith("+100.0 [")
    plain = write(tmp_path, "plain", [1, 1, 1, 1])
    (rows,) = cells(run(table, capsys, "--arm", "plain", plain, "--arm", "ours", ours))
    assert not [name for name in rows["ours"] if "joint" in name or "verbatim" in name]


def test_a_condition_adds_a_table_of_its_questions(table, tmp_path, capsys):
    base, ours = write(tmp_path, "base", [0, 0, 0, 0]), write(tmp_path, "ours", [1, 1, 0, 0])
    said = run(table, capsys, "--arm", "base", base, "--arm", "ours", ours, "--where", "set=hotpot,2wiki")
    assert "set = hotpot, 2wiki: 2 questions" in said
    whole, part = cells(said)
    assert (whole["ours"]["EM %"][:4], part["ours"]["EM %"]) == ("50.0", "100.0 [34.2, 100.0]")
    assert "EM %, nq" in whole["ours"] and "EM %, nq" not in part["ours"]


def test_digits_of_the_hash_choose_questions(table, tmp_path, capsys):
    path = write(tmp_path, "base", [1] * 64)
    kept = [n for n in range(64) if hashlib.sha256(f"q{n}".encode()).hexdigest()[0] in "56789abcdef"]
    assert 0 < len(kept) < 64
    assert f"all: {len(kept)} questions, sha256(id) begins with 5-f" in run(
        table, capsys, "--arm", "a", path, "--digits", "5-f"
    )
    assert table.parse_digits("0,5-7,F") == set("0567f")
    # The digits of a range and of the rest share nothing, and are all there are.
    low, high = table.parse_digits("0-4"), table.parse_digits("5-f")
    assert low | high == set("0123456789abcdef") and not low & high


def test_only_questions_of_every_file_count(table, tmp_path, capsys):
    base, ours = write(tmp_path, "base", [0, 0, 0]), write(tmp_path, "ours", [1, 1])
    said = run(table, capsys, "--arm", "base", base, "--arm", "ours", ours)
    assert "all: 2 questions" in said and "1 questions that not every file has are left out" in said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--digits", "5-g"], "hex digits and ranges"),
        (["--digits", "9-5"], "hex digits and ranges"),
        (["--where", "answer=Venn"], "--where takes set=A,B or facts=A,B or kind=A,B"),
        (["--same-start", "--arm", "two", "FILE", "FILE"], "--same-start needs as many files"),
        (["--where", "set=musique"], "no question is left"),
        (["--baseline", "none"], "none of the arms: base"),
        (["--arm", "empty"], "arm empty has no file"),
        (["--arm", "base", "FILE"], "two arms have the same name"),
    ],
)
def test_refusals(table, tmp_path, capsys, argv, said):
    path = write(tmp_path, "base", [1, 0])
    with pytest.raises(SystemExit) as stopped:
        table.main(["--arm", "base", path, *(path if word == "FILE" else word for word in argv)])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_abstention_by_hand(table, tmp_path, capsys):
    """Four answerable questions and one without an answer; `ours` loses one of the two that `base` has right."""
    silent = {"answer": "not in these documents", "abstained": True}

    def write_both(name, *found):
        write_items(found, tmp_path / f"{name}.jsonl")
        return str(tmp_path / f"{name}.jsonl")

    base = write_both("base", *(item(f"q{n}", float(n < 2)) for n in range(4)), item("u", 0.0, answerable=False))
    abstaining = [item("q0", 1.0), item("q1", 0.0, **silent), item("q2", 0.0, **silent), item("q3", 0.0)]
    ours = write_both("ours", *abstaining, item("u", 0.0, **silent, answerable=False))
    out = run(table, capsys, "--arm", "base", base, "--arm", "ours", ours)
    assert "all: 5 questions, 1 of them without an answer" in out
    tables = cells(out)
    assert tables[0]["base"]["EM %"].startswith("50.0 ") and tables[0]["ours"]["EM %"].startswith("25.0 ")
    # base: two of five right, and all its answers are of unknown confidence. ours: one of two answers wrong, then three
    # abstentions of which one is right; the first four of them have 1 + 2 * 2/3 wrong.
    assert tables[-1]["base"] == {"abstention": "base", "refused %": "0.0", "lost %": "", "wrong at 80 %": "60.0"}
    assert tables[-1]["ours"] == {"abstention": "ours", "refused %": "100.0", "lost %": "50.0", "wrong at 80 %": "58.3"}
    sure = [item(f"q{n}", float(n < 2), confidence=0.2 * (n + 1)) for n in range(4)]
    unsure = write_both("unsure", *sure, item("u", 0.0, answerable=False, confidence=0.1))
    tables = cells(run(table, capsys, "--arm", "base", base, "--arm", "ours@0.3", unsure))
    found = tables[-1]["ours@0.3"]
    assert (found["refused %"], found["lost %"]) == ("100.0", "50.0")  # q0 and u are below 0.3
    assert tables[0]["ours@0.3"]["EM %"].startswith("25.0 ")
    alone = [write_both(f"u{n}", item("u", 0.0, **silent, answerable=False)) for n in range(2)]
    out = run(table, capsys, "--arm", "one", *alone)
    assert "all: 1 questions, 1 of them without an answer" in out
    assert cells(out) == [{"one": {"abstention": "one", "refused %": "100.0", "lost %": "", "wrong at 80 %": "0.0"}}]
    plain = write_both("plain", *(item(f"q{n}", float(n < 2)) for n in range(4)))
    rows = cells(run(table, capsys, "--arm", "plain", plain, "--arm", "ours", ours))[-1]
    assert list(rows["plain"].values()) == ["plain", "", "", ""] and rows["ours"]["lost %"] == "50.0"
    assert "abstention" not in run(table, capsys, "--arm", "base", write(tmp_path, "plain", [1, 0, 0, 0]))
