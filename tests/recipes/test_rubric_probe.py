"""`benchmarks/rubric_probe.py`: features by hand, shares of variance against a plain loop, and a rehearsal."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judging import QUESTION
from properties import examples
from quaere.chat.statements import extract_conclusion, split_statements
from quaere.records import Report, Source
from tiny import passage

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TEXT = (
    "The Oss has 12 arches [1], and the builder is Venn [2]. Also, the stone is grey [2].\n\n"
    "Nothing was found on its length.\n\nConclusion: The Oss is tied to Venn [1, 2]."
)


@pytest.fixture
def probe(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import rubric_probe

    return rubric_probe


def test_features_by_hand(probe):
    sources = (Source(1, passage("a")), Source(2, passage("b")))
    report = Report(QUESTION, TEXT, split_statements(TEXT), sources, extract_conclusion(TEXT))
    found = probe.measure_row((0, 1, 2), report)
    assert (found.question, found.rubric, found.attempt, found.conclusion) == (0, 1, 2, report.conclusion)
    words = [10, 5, 6, 6]  # without marks; the label "Conclusion:" belongs to no sentence
    assert found.features == {
        "statements": 4.0,
        "words per statement": pytest.approx(sum(words) / 4),
        "marks": 4 / 4,
        "statements without a mark": 1 / 4,
        "figures": 1.0,
        "passages cited": 2.0,
        "gaps admitted": 1.0,
        "joining words": 1.0,
        "words of the conclusion": 6.0,
        "turns": 1.0,
    }
    assert probe.measure_row((0, 0, 0), None).features is None


# ------------------------------------------------------------------------------------------------------------- variance


def naive_share(values):
    """The same by loops over questions, rubrics and attempts."""
    rows = []
    for of_question in values:
        known = [value for of_rubric in of_question for value in of_rubric if not np.isnan(value)]
        mean = sum(known) / len(known) if known else 0.0
        rows += [
            (rubric, value - mean)
            for rubric, of_rubric in enumerate(of_question)
            for value in of_rubric
            if not np.isnan(value)
        ]
    total = sum(value**2 for _, value in rows)
    between = 0.0
    for rubric in {rubric for rubric, _ in rows}:
        own = [value for one, value in rows if one == rubric]
        between += sum(own) ** 2 / len(own)
    return between / total if total > 1e-12 else 0.0


def test_shares_by_hand(probe):
    # The rubrics' means are 1 and 3 around 2: all is explained; or 2 and 2: nothing is.
    assert probe.explained_share(np.array([[[1.0, 1.0], [3.0, 3.0]]])) == pytest.approx(1.0)
    assert probe.explained_share(np.array([[[1.0, 3.0], [3.0, 1.0]]])) == 0.0
    # Squares 4 + 0 + 0 + 4 around 2; rubric means 1 and 3: 2 * 1 + 2 * 1 of 8.
    assert probe.explained_share(np.array([[[0.0, 2.0], [2.0, 4.0]]])) == pytest.approx(0.5)
    assert probe.explained_share(np.full((2, 2, 2), 7.0)) == 0.0


VALUES = st.tuples(st.integers(1, 4), st.integers(2, 4), st.integers(1, 3)).flatmap(
    lambda shape: st.lists(
        st.integers(-9, 9) | st.just(np.nan), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
    ).map(lambda values: np.array(values, dtype=float).reshape(shape))
)


@settings(max_examples=examples(100))
@given(VALUES, st.integers(-5, 5))
def test_a_share_is_that_of_a_plain_loop_and_ease_of_a_question_does_not_count(values, ease):
    import sys

    sys.path.insert(0, str(BENCHMARKS))
    import rubric_probe

    share = rubric_probe.explained_share(values)
    assert share == pytest.approx(naive_share(values), abs=1e-9) and -1e-9 <= share <= 1 + 1e-9
    moved = values + ease * np.arange(len(values))[:, None, None]
    assert rubric_probe.explained_share(moved) == pytest.approx(share, abs=1e-6)


def test_an_effect_is_told_from_chance(probe):
    draw = np.random.default_rng(0)
    noise = draw.normal(size=(16, 10, 8))
    effect = noise + 0.8 * draw.normal(size=(1, 10, 1))
    none, found = probe.explain_variance(noise), probe.explain_variance(effect)
    assert none.p > 0.05 and abs(none.share - none.by_chance) < 0.01
    assert found.p < 0.01 and found.low > found.by_chance + 0.1 and found.low <= found.share <= found.high


# ------------------------------------------------------------------------------------------------------------ rehearsal


def test_a_probe_is_rehearsed_and_goes_on_where_it_was_stopped(probe, newsroom_paths, tmp_path, capsys, monkeypatch):
    """In the newsroom, whose writer concludes in the same word under coverage and in any under insight."""
    pytest.importorskip("sklearn")
    import newsroom
    from quaere.dialects.report.report_writer import ReportWriter
    from quaere.rollout.episode import Limits

    index, model, questions = map(str, newsroom_paths)
    taught = ReportWriter(style="brief"), Limits(**newsroom.LIMITS)
    monkeypatch.setattr(probe, "choose_writer", lambda notes, **how: taught)
    monkeypatch.setattr(probe, "make_rubrics", lambda: [newsroom.rubric(name) for name in ("coverage", "insight")])
    words = [model, "--index", index, "--questions", questions, "--num-questions", "2", "--attempts", "3"]
    words += ["--device", "cpu", "--out", str(tmp_path)]
    probe.main(words)
    table = capsys.readouterr().out
    file = tmp_path / f"{Path(model).name}.jsonl"
    rows = probe.read_rows(file)
    places = {(row.question, row.rubric, row.attempt) for row in rows}
    assert places == set(itertools.product(range(2), range(2), range(3))) and len(rows) == 12
    assert "| C |" in table and "12 reports finished" in table
    whole = sorted(file.read_bytes().splitlines())
    file.write_bytes(b"\n".join(file.read_bytes().splitlines()[:5]) + b'\n{"question": 1')  # cut off while writing
    probe.main(words)
    assert sorted(file.read_bytes().splitlines()) == whole


def test_two_models_of_one_name_are_refused(probe, newsroom_paths, tmp_path):
    from quaere.errors import BadInput

    _, _, questions = map(str, newsroom_paths)
    with pytest.raises(BadInput, match="same name"):
        probe.main(["a/m", "b/m", "--index", "i", "--questions", questions, "--out", str(tmp_path)])
