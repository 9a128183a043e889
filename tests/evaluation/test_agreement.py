"""`benchmarks/agreement.py`: groups of attempts as votes, and what a least agreement refuses and loses."""

from pathlib import Path

import pytest

from quaere.records import Answer, Episode, Question, SolveTask
from quaere.rewards.abstention import ABSTENTION

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


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
        agreement.describe(2, attempts("h1", (), no, "Oss", "Oss", "Brod")),
        agreement.describe(2, attempts("h2", (), no, no, no, no)),
    ]
    assert [(one.answerable, one.agreeing, one.right, one.right_attempts) for one in groups] == [
        (1, 3, 1, 3),
        (1, 1, 1, 1),
        (0, 2, 0, 1),
        (0, 0, 0, 4),
    ]
    said = agreement.report(groups).splitlines()
    cells = {line.split("|")[1].strip(): [float(cell) for cell in line.split("|")[2:4]] for line in said[2:6]}
    assert cells == {"1/4": [50.0, 0.0], "2/4": [50.0, 50.0], "3/4": [100.0, 50.0], "4/4": [100.0, 100.0]}
    assert "curve 0.750" in said[-2]  # of four pairs one is the wrong way round
    assert "single attempt is right in 50.0%, the vote in 100.0%" in said[-1]


def test_the_committed_groups(agreement):
    groups = agreement.read_groups(BENCHMARKS / "results/abstention/votes.tsv", last=7)
    assert len(groups) == 448 and "curve 0.935" in agreement.report(groups)
