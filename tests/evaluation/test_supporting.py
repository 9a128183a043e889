"""Claim files, where their spans stand, and what is said of a whole file."""

import gzip
import json

import pytest

from quaere.errors import BadInput
from quaere.evaluation.claims import Verified, locate_evidence, read_claims, score_supporting
from quaere.records import Evidence, Support
from quaere.search.index_build import build_index
from quaere.training.evidence import Claim

HALM = "# Halm\n\nOrsolya Venn built the\nHalm bridge in 1702. It’s of oak.\n"


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_every_shape_of_line(tmp_path):
    rows = [
        {"question": "Who?", "answer": "Venn", "evidence": "Venn built it."},
        {"question": "Who?", "answers": ["Venn", "O. Venn"], "evidence": {"text": "Venn.", "doc_id": "d"}, "id": "x"},
        {"question": "Who?", "answer": "Venn", "evidence": [{"text": "One."}, "Two.", " "], "id": 7, "hops": 2},
        {"question": "Who?", "answer": "Venn", "evidence": None},
        "",
        {"question": "Who?", "answer": "Venn", "evidence": ""},
    ]
    found = read_claims(write(tmp_path / "a.jsonl", *rows))
    assert found.claims == [
        Claim("q1", "Who?", ("Venn",), "Venn built it."),
        Claim("x", "Who?", ("Venn", "O. Venn"), "Venn."),
        Claim("7", "Who?", ("Venn",), "One.\nTwo."),
        Claim("q4", "Who?", ("Venn",), ""),
        Claim("q6", "Who?", ("Venn",), ""),
    ]
    assert found.spans == [("Venn built it.",), ("Venn.",), ("One.", "Two."), (), ()]
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    assert read_claims(packed) == found
    assert read_claims(packed, limit=2).claims == found.claims[:2]


GOOD = {"question": "Who?", "answer": "Venn", "evidence": "Venn built it."}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{not json", "line 2: "),
        ({"question": "Who?", "answer": "Venn"}, "line 2: Object missing required field `evidence`"),
        ({"answer": "Venn", "evidence": "x"}, "line 2: Object missing required field `question`"),
        ({"question": " ", "answer": "Venn", "evidence": "x"}, "line 2: the question is empty"),
        ({"question": "Who?", "evidence": "x"}, "line 2: the answer is missing"),
        ({"question": "Who?", "answers": [], "evidence": "x"}, "line 2: the answer is missing"),
        ({"question": "Who?", "answers": ["Venn", ""], "evidence": "x"}, "line 2: the answer is missing or empty"),
        ({"question": "Who?", "answer": "Venn", "evidence": 7}, "line 2: Expected"),
        ({**GOOD, "id": "q1"}, "line 2: the id q1 occurs twice"),
    ],
)
def test_a_line_that_is_no_claim_is_named(tmp_path, line, said):
    with pytest.raises(BadInput, match=said):
        read_claims(write(tmp_path / "a.jsonl", GOOD, line))


def test_a_file_without_claims_is_refused(tmp_path):
    with pytest.raises(BadInput, match="contains no claim"):
        read_claims(write(tmp_path / "a.jsonl", ""))
    with pytest.raises(BadInput, match="cannot be read"):
        read_claims(tmp_path / "none.jsonl")


def test_spans_are_found_in_the_documents_own_words_or_not_at_all(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "halm.md").write_text(HALM)
    # More documents than a search suggests, all of which speak of the bridge more than the one that holds the span.
    for number in range(30):
        (folder / f"{number}.md").write_text(f"bridge bridge bridge {number}\n")
    (folder / "last.md").write_text(f"{'Other words. ' * 40}One bridge more.\n")
    index = build_index(folder, tmp_path / "index")
    found = locate_evidence(
        ["built the Halm bridge", "It's of oak.", "One bridge more.", "built the halm bridge", "!!!", " "], index
    )
    assert found["built the Halm bridge"] == Evidence("halm.md", 21, 42, "built the\nHalm bridge")
    assert found["It's of oak."].text == "It’s of oak."
    assert found["One bridge more."].doc_id == "last.md"
    assert found["built the halm bridge"] is None and found["!!!"] is None
    assert " " not in found
    for evidence in filter(None, found.values()):
        assert index.document(evidence.doc_id)[evidence.start : evidence.end] == evidence.text


def item(with_span, without, evidence=None, span="s"):
    support = None if with_span is None else Support(with_span, without, 5)
    return Verified(Claim("q", "Who?", ("Venn",), span), support, support.value if support else None, evidence)


def test_a_file_in_numbers():
    here = (Evidence("d", 0, 1, "s"),)
    items = [item(1.0, 0.0, here), item(0.5, 0.46, ()), item(0.4, 0.4, here), item(0.0, 0.6, ()), item(None, 0, ())]
    score = score_supporting([*items, item(0.3, 0.3, (), span=" ")])
    assert (score.num_helping, score.num_idle, score.num_hurting) == (1, 3, 1)
    assert (score.num_unverified, score.num_without_evidence, score.num_verbatim) == (1, 1, 2)
    assert score.value.mean == pytest.approx((1 + 0.04 + 0 - 0.6 + 0) / 5)
    assert score.value.num == score.chance_with.num == 5
    assert score.chance_with.mean == pytest.approx(2.2 / 5) and score.chance_without.mean == pytest.approx(1.76 / 5)
    nothing = score_supporting([item(None, 0)])
    assert (nothing.value, nothing.num_unverified, nothing.num_verbatim) == (None, 1, None)


def test_few_claims_leave_much_open():
    """Three spans without which the answer was never given, and with which it always was."""
    score = score_supporting([item(1.0, 0.0)] * 3)
    assert (score.chance_with.low, score.chance_without.high) == pytest.approx((3 / 6.8415, 3.8415 / 6.8415), abs=1e-4)
    assert (score.value.mean, score.value.high) == (1.0, 1.0)
    assert score.value.low == pytest.approx(1 - 2 * (1 - 0.025 ** (1 / 3)))  # three equal gains
