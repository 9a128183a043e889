"""`benchmarks/agreement.py`: attempts as votes, and what a least agreement refuses and loses."""

from pathlib import Path

import pytest

from quaere.errors import BadInput
from quaere.evaluation.qa.items import Item
from quaere.records import Answer, Episode, Question, SolveTask
from quaere.rewards.abstention import ABSTENTION

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results"


@pytest.fixture
def agreement(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import agreement

    return agreement


def attempts(name, accepted, *texts):
    question = Question(name, "Who?", answers=accepted)
    return [
        Episode(
            f"{name}-a{n}",
            SolveTask(question),
            "p",
            "m",
            0,
            (),
            (),
            Answer(text, abstained=text == ABSTENTION),
            "answered",
        )
        for n, text in enumerate(texts)
    ]


def test_groups_by_hand(agreement):
    """Right with 3 of 4, right with 1 of 4; hidden with 2 of 4 agreeing, hidden with none."""
    no = ABSTENTION
    groups = [
        agreement.describe(1, attempts("q1", ("Venn",), "Venn", "Venn", "Brod", "Venn")),
        agreement.describe(1, attempts("q2", ("Oss",), no, "Oss", no, no)),
        agreement.describe(2, attempts("q1-hidden", (), no, "Oss", "Oss", "Brod")),
        agreement.describe(2, attempts("q2-hidden", (), no, no, no, no)),
    ]
    assert [(one.answerable, one.agreeing, one.right, one.right_attempts) for one in groups] == [
        (1, 3, 1, 3),
        (1, 1, 1, 1),
        (0, 2, 0, 1),
        (0, 0, 0, 4),
    ]
    said = agreement.report([agreement.from_group(one) for one in groups]).splitlines()
    cells = [[cell.partition("[")[0].strip() for cell in line.split("|")[1:-1]] for line in said[2:5]]
    assert cells == [
        # least, hidden refused, right votes lost, right single attempts lost (of 3 and 1), EM, EM - single attempt
        ["0.25", "50.0", "0.0", "0.0", "100.0", "50.0"],
        ["0.5", "50.0", "50.0", "25.0", "50.0", "0.0"],
        ["0.75", "100.0", "50.0", "25.0", "50.0", "0.0"],
    ]
    assert "curve 0.750" in said[-1]  # of four pairs one is the wrong way round


def item(name, right, **changes):
    answerable = not name.endswith("-hidden") and not name.startswith("u")
    values = {"answer": "Venn", "exact_match": float(right), "f1": float(right), "end": "answered", "num_turns": 2}
    counts = {"num_searches": 1, "num_tokens": 50, "answerable": answerable}
    return Item(name, "3f0c9a51", **values, **counts, **changes)


def test_items_by_hand(agreement):
    """A right and a wrong vote, a hidden copy of the first, a question without an answer, and an abstention."""
    votes = agreement.from_items(
        [
            item("q1", True, confidence=0.5),
            item("q2", False, confidence=0.25),
            item("q1-hidden", False, confidence=0.25),
            item("u1", False, confidence=0.5),
            item("u2", False, confidence=0.75, abstained=True),
        ],
        [item(name, name in ("q1", "q2")) for name in ("q1", "q2", "q1-hidden", "u1", "u2")],
    )
    assert [(one.agreement, one.right, one.single) for one in votes] == [
        (0.5, True, 1.0),
        (0.25, False, 1.0),
        (0.25, False, 0.0),
        (0.5, False, 0.0),
        (0.0, False, 0.0),
    ]
    said = agreement.report(votes).splitlines()
    cells = [[cell.partition("[")[0].strip() for cell in line.split("|")[1:-1]] for line in said[2:4]]
    assert cells == [
        # least, hidden refused, unanswerable refused, right votes lost, right single attempts lost, EM, difference
        ["0.25", "0.0", "50.0", "0.0", "0.0", "50.0", "-50.0"],
        ["0.5", "100.0", "50.0", "0.0", "50.0", "50.0", "-50.0"],
    ]


def test_what_cannot_be_compared_is_refused(agreement):
    with pytest.raises(BadInput, match="none was asked with a hidden answer"):
        agreement.report(agreement.from_items([item("q1", True)], [item("q1", True)]))
    with pytest.raises(BadInput, match="1 questions were not asked once: q2"):
        agreement.from_items([item("q1", True), item("q2", True)], [item("q1", True)])


def test_the_committed_groups(agreement):
    votes = [agreement.from_group(one) for one in agreement.read_groups(RESULTS / "abstention/votes.tsv", last=7)]
    assert len(votes) == 448 and "curve 0.954" in agreement.report(votes)


def test_a_hidden_copy_is_on_the_side_of_its_question(agreement):
    digits = agreement.parse_digits("5-f")
    paths = [RESULTS / f"learn/exam-{name}.items.jsonl.gz" for name in ("voted", "after")]
    votes = agreement.from_items(*(agreement.read_items(path) for path in paths))
    kept = {one.question for one in votes if agreement.first_digit(one.question) in digits}
    hidden = {name for name in kept if name.endswith("-hidden")}
    assert len(hidden) == 141 and {name.removesuffix("-hidden") for name in hidden} < kept
