"""Kept questions are checked again after their documents have changed."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_endpoint import ANSWERS, MISSING, PAGES, Failing, Reader, make_index, write

from quaere.api.background import Interrupted
from quaere.api.checked_questions import recheck_questions
from quaere.errors import SamplingFailed
from quaere.records import Evidence
from quaere.rollout import policy
from quaere.rollout.policy import ChatPolicy
from quaere.warmup.documents.checked_question import CheckedQuestion, WriterSettings
from quaere.warmup.documents.checks import UNREAD, Examiner, Lines
from quaere.warmup.documents.held_back import list_documents
from quaere.warmup.documents.stale_questions import (
    NO_DOCUMENT,
    NO_EVIDENCE,
    OUTAGE,
    SAME_EVIDENCE,
    locate_evidence,
    reread,
)
from quaere.warmup.documents.unanswerable import READ

IDS = list(PAGES)


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """Questions of all kinds about the pages."""
    index = make_index(tmp_path_factory.mktemp("pages"), PAGES.items(), IDS)
    written = asyncio.run(write(index, unanswerable=0.2, drafts=60)).questions
    by_text = {one.question: one for one in written}
    parts = [by_text[text] for text in ("Who built Halm Bridge?", "When was Orsolya Venn born?")]
    spans = tuple(span for one in parts for span in one.evidence)
    asked = "When was the builder of Halm Bridge born?"
    return [*written, CheckedQuestion("chained", asked, parts[1].answers, "chain", 2, 2, 2, spans)]


def check(folder, questions, pages, touched, reader=None, **tables):
    """The result with an index of other pages, by this reader, or one that answers from these tables."""
    index = make_index(folder, pages.items(), list(pages))
    located = locate_evidence(questions, touched, index)
    settings = WriterSettings(topk=2)
    lines = Lines(ChatPolicy(reader or Reader(**tables)), seed=0, concurrency=4, outage=OUTAGE)
    return index, asyncio.run(reread(located, Examiner(lines, index, settings)))


def about(questions, name):
    return [one for one in questions if name in list_documents(one)]


def test_there_are_questions_of_all_kinds(questions):
    assert {one.kind for one in questions} >= {"single", "chain", "comparison", "agreement", "unanswerable"}


def test_nothing_is_retired_if_the_pages_say_the_same(questions, tmp_path):
    pages = {name: f"A new first line. {text}" for name, text in PAGES.items()}
    index, found = check(tmp_path, questions, pages, set(IDS))
    assert not found.retired and not found.untouched
    assert [one.id for one in found.checked] == [one.id for one in questions]
    for span in (span for one in found.checked for span in one.evidence):
        assert index.document(span.doc_id)[span.start : span.end] == span.text


def test_only_questions_about_touched_documents_are_checked(questions, tmp_path):
    pages = {name: text for name, text in PAGES.items() if name != "Ada Brandt"} | {"Halm Bridge": "It is gone."}
    _, found = check(tmp_path, questions, pages, {"Ada Brandt"})  # the bridge's page is not named
    assert {one.id for one in found.retired} == {one.id for one in about(questions, "Ada Brandt")}
    assert {one.reason for one in found.retired} == {NO_DOCUMENT}
    assert found.untouched == [one for one in questions if one not in about(questions, "Ada Brandt")]


def test_evidence_that_is_no_longer_verbatim_takes_all_its_questions_along(questions, tmp_path):
    pages = PAGES | {"Orsolya Venn": PAGES["Orsolya Venn"].replace("4 May 1671", "5 May 1672")}
    _, found = check(tmp_path, questions, pages, {"Orsolya Venn"})
    lost = [one for one in questions if any("4 May 1671" in span.text for span in one.evidence)]
    assert {one.kind for one in lost} > {"single"}
    assert {one.id for one in found.retired if one.reason == NO_EVIDENCE} == {one.id for one in lost}


def test_a_page_that_contradicts_itself_retires_the_answer_and_what_was_made_of_it(questions, tmp_path):
    asked, other = "When was Marta Oleen born?", "13 July 1691"
    pages = PAGES | {"Marta Oleen": f"{PAGES['Marta Oleen']} In truth she was born on {other}."}
    _, found = check(tmp_path, questions, pages, {"Marta Oleen"}, answers=ANSWERS | {asked: other})
    reasons = {one.id: one.reason for one in found.retired}
    (single,) = (one for one in questions if one.question == asked)
    same = [one for one in about(questions, "Marta Oleen") if set(single.evidence) & set(one.evidence)]
    assert reasons[single.id] == UNREAD and len(same) > 1
    assert {one.id for one in same} == reasons.keys()
    assert {reasons[one.id] for one in same if one.kind in ("comparison", "agreement")} <= {SAME_EVIDENCE}


def test_what_a_page_did_not_say_may_be_said_now(questions, tmp_path):
    unsaid = next(one for one in questions if one.kind == "unanswerable")
    (page,) = list_documents(unsaid)
    assert unsaid.question == MISSING[page]
    pages = PAGES | {page: f"{PAGES[page]} Its name was given by Brod."}
    _, found = check(tmp_path, questions, pages, {page}, answers=ANSWERS | {unsaid.question: "Brod"})
    assert [(one.id, one.reason) for one in found.retired] == [(unsaid.id, READ)]


@pytest.mark.parametrize("kind", ["single", "unanswerable"])
def test_answers_that_are_lost_retire_no_question(questions, tmp_path, kind):
    asked = next(one for one in questions if one.kind == kind).question
    reader = Failing(10**6, only=f"Question: {asked}")
    _, found = check(tmp_path, questions, PAGES, set(IDS), reader)
    assert reader.left < 10**6 and found.checked == questions


@pytest.mark.parametrize("num", [1, 3, 4])
def test_only_the_loss_of_several_answers_is_an_outage(questions, tmp_path, num):
    """The one question that is left may be what the model fails at, every time."""
    left = [one for one in questions if one.kind == "single"][:num]
    if num < 4:
        assert check(tmp_path, left, PAGES, set(IDS), Failing(10**6))[1].checked == left
    else:
        with pytest.raises(SamplingFailed, match="out of memory"):
            check(tmp_path, left, PAGES, set(IDS), Failing(10**6))


def test_a_lost_answer_does_not_outweigh_those_that_are_wrong(questions, tmp_path):
    asked, other = "When was Marta Oleen born?", "13 July 1691"
    pages = PAGES | {"Marta Oleen": f"{PAGES['Marta Oleen']} In truth she was born on {other}."}
    reader = Failing(3, only=f"Question: {asked}", answers=ANSWERS | {asked: other})  # a whole answer is lost
    _, found = check(tmp_path, questions, pages, {"Marta Oleen"}, reader)
    assert reader.left == 0 and (asked, UNREAD) in {(one.question, one.reason) for one in found.retired}


@given(st.text("ab ", max_size=12), st.text("ab ", max_size=12), st.integers(0, 30))
def test_evidence_is_found_at_the_nearest_place(before, after, start):
    """As a naive search over all places finds it."""

    class Page:
        def document_ids(self):
            return ["page"]

        def document(self, name):
            return f"{before}ab{after}"

    text = Page().document("page")
    question = CheckedQuestion("page#0:0", "?", ("a",), "single", 1, 1, 1, (Evidence("page", start, start + 2, "ab"),))
    found = locate_evidence([question], {"page"}, Page())
    (span,) = found.checked[0].evidence
    places = [at for at in range(len(text)) if text[at : at + 2] == "ab"]
    assert text[span.start : span.end] == "ab" and abs(span.start - start) == min(abs(at - start) for at in places)


def test_the_work_ends_when_its_caller_was_interrupted(questions, tmp_path, monkeypatch):
    pages = {name: f"A new first line. {text}" for name, text in PAGES.items()}
    make_index(tmp_path, pages.items(), list(pages))
    reader, asked = Reader(), threading.Event()
    reply = reader.reply

    async def note(messages, params):
        asked.set()
        return await reply(messages, params)

    def check():
        if asked.is_set():
            raise Interrupted

    monkeypatch.setattr(reader, "reply", note)
    monkeypatch.setattr(policy, "open_policy", lambda model, **engine: ChatPolicy(reader))
    how = {"model": "reader", "index": tmp_path / "index", "settings": WriterSettings(topk=2), "device": "cpu"}
    with pytest.raises(Interrupted):
        recheck_questions(questions, set(IDS), **how, note=lambda line: None, check=check)
