"""Questions held to rules that need no label: which of them the documents prove."""

import pytest

from quaere.errors import BadInput
from quaere.evaluation.qa.curriculum_quality import (
    CHOICE,
    LEAKED,
    MISQUOTED,
    NAMELESS,
    UNPROVEN,
    UNSOURCED,
    Asked,
    find_gap,
    measure_quality,
    of_candidate,
    of_question,
)
from quaere.records import (
    Candidate,
    Episode,
    Evidence,
    Hit,
    Passage,
    Proposal,
    ProposeTask,
    Question,
    Search,
    SearchResult,
    Turn,
)

DOCUMENTS = {
    "halm": "The bridge at Halm is old. It was built by Orsolya Venn in 1702.",
    "venn": "Orsolya Venn was born in Korrin Vale.",
}
SENTENCE = "It was built by Orsolya Venn in 1702."


def read(doc_id):
    if doc_id not in DOCUMENTS:
        raise BadInput("there is no such document")
    return DOCUMENTS[doc_id]


@pytest.mark.parametrize(
    ("question", "answer", "gap"),
    [
        ("Who built the bridge at Halm?", "Orsolya Venn", ""),
        ("In which year was the Halm bridge built?", "1702", ""),
        ("Who built the bridge at Halm?", "Venn in 1702", ""),
        ("Who built the bridge at Halm?", "orsolya venn", UNPROVEN),  # letter for letter
        ("In which year was the Halm bridge built?", "170", UNPROVEN),  # whole
        ("Who built the bridge at Halm?", "old. It", UNPROVEN),  # in one sentence
        ("Who built the bridge at Halm?", "", UNPROVEN),
        ("Who built the old bridge?", "Orsolya Venn", NAMELESS),
        ("Did Orsolya Venn build the bridge at Halm?", "Orsolya Venn", LEAKED),
        ("Was the bridge at Halm built by Venn?", "yes", CHOICE),
        ("Who built Halm bridge, Orsolya Venn or Marta Oleen?", "Orsolya Venn", CHOICE),
        ("The bridge at Halm.", "Orsolya Venn", "is not one question"),
        ("Who built Halm according to the text?", "Orsolya Venn", "speaks of a text"),
    ],
)
def test_the_first_rule_that_is_broken(question, answer, gap):
    assert find_gap(Asked("q", question, (answer,), (DOCUMENTS["halm"],))) == gap


def test_any_accepted_answer_will_do_and_texts_are_needed():
    assert find_gap(Asked("q", "Who built Halm bridge?", ("O. Venn", "Orsolya Venn"), (SENTENCE,))) == ""
    assert find_gap(Asked("q", "Who built Halm bridge?", ("Orsolya Venn",))) == UNSOURCED


def test_counts_and_share_by_hand():
    good = Asked("q", "Who built Halm bridge?", ("Orsolya Venn",), (SENTENCE,))
    bad = Asked("q", "Who built Halm bridge?", ("Marta Oleen",), (SENTENCE,))
    quality = measure_quality([good] * 8 + [bad, Asked("q", "Who built it, then?", ("Venn",))])
    assert (quality.num, quality.num_proven, quality.faults) == (10, 8, {UNPROVEN: 1, NAMELESS: 1})
    share = quality.share
    assert (share.mean, share.num) == (0.8, 10)
    assert (share.low, share.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_a_line_of_a_file_is_proven_by_its_evidence_and_without_by_its_documents():
    start = DOCUMENTS["halm"].index(SENTENCE)
    right = Evidence("halm", start, start + len(SENTENCE), SENTENCE)
    moved = Evidence("halm", 0, len(SENTENCE), SENTENCE)
    gone = Evidence("oss", 0, len(SENTENCE), SENTENCE)
    text = "Who built Halm bridge?"

    def gap(**more):
        return find_gap(of_question(Question("q", text, ("Orsolya Venn",), **more), read))

    assert gap(evidence=(right,)) == ""
    assert gap(evidence=(moved,)) == gap(evidence=(gone,)) == MISQUOTED
    assert gap(gold_ids=("halm",)) == "" and gap(gold_ids=("oss",)) == gap() == UNSOURCED


def test_a_candidate_without_evidence_is_proven_by_what_its_proposer_was_shown():
    candidate = Candidate("c", 1, 0, "c", "halm", 2, "Where was the builder of Halm bridge born?", "Korrin Vale")
    venn = Passage("venn#0", "venn", "Orsolya Venn", DOCUMENTS["venn"], 0, len(DOCUMENTS["venn"]))
    turn = Turn(0, "", Search(("Venn",)), "stop_string", (SearchResult("Venn", (Hit(venn, 1.0),)),))
    task = ProposeTask("c", None, 2)
    proposal = Proposal(candidate.question, candidate.answer)
    episode = Episode("c", task, "drzero-proposer", "m", 0, (), (turn,), proposal, "answered")
    assert find_gap(of_candidate(candidate, episode, read)) == ""
    assert find_gap(of_candidate(candidate, None, read)) == UNPROVEN
