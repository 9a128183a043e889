"""Questions about what the documents do not say: written about a page, kept if no two readings give the same answer."""

from types import SimpleNamespace

import pytest
from reading_endpoint import MISSING, PAGES, Reader, make_index, write

from quaere.policies.sampler import ChatReply
from quaere.records import Passage
from quaere.warmup.documents import writer
from quaere.warmup.documents.checked_question import Worded, WriterSettings
from quaere.warmup.documents.prompt_examples import MISSING as EXAMPLES
from quaere.warmup.documents.unanswerable import draw_unanswerable, find_fault_of_unanswerable, read_answer


@pytest.fixture(scope="module")
def pages_index(tmp_path_factory):
    return make_index(tmp_path_factory.mktemp("pages"), PAGES.items())


def unanswerable(written):
    return [question for question in written.questions if question.kind == "unanswerable"]


def reasons(written):
    return {reason for reason in written.reasons if reason.startswith("unanswerable: ")}


# --------------------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("The Oss.", "oss"),
        ("no", "no"),  # the answer of a yes/no question
        ("Norway", "norway"),
        ("No default", "no default"),
        ("Unknown", ""),
        ("N/A", ""),
        ("None.", ""),
        ("I don't know", ""),
        ("The text does not say who built it.", ""),
        ("Not specified", ""),
        ("No information given", ""),
        ("not in these documents", ""),
        ("-", ""),
    ],
)
def test_a_reading_may_say_that_there_is_no_answer(line, answer):
    assert read_answer(line) == answer


@pytest.mark.parametrize(
    ("question", "fault"),
    [
        ("How long is Halm Bridge?", ""),
        ("How long is the bridge of halm?", ""),
        ("How wide is Halm's bridge at --night?", "names what its page does not"),
        ("Who owned Halm Bridge?", ""),
        ("Who owned Halm Bridge before Ada Brandt?", "names what its page does not"),
        ("Who owned the mill near the river?", "does not name what it is about"),
        ("Halm Bridge is very long.", "is not one question"),
        ("Who owns the Halm Bridge of the text?", "speaks of a text"),
        ("Who pays for Halm Bridge?", "is copied from its page"),
        *((question, "does not name what it is about") for *_, question in EXAMPLES[:1]),
        *((question, "names what its page does not") for *_, question in EXAMPLES[3:4]),
    ],
)
def test_rules_for_a_question_about_a_page(question, fault):
    text = "It crosses the River Oss near the old mill. Who pays for Halm Bridge? It was built by Orsolya Venn."
    (draft, *_) = draw_unanswerable([Passage("halm#0", "halm", "Halm Bridge", text, 0, len(text))], 1, 0)
    assert (draft.id.endswith("-unanswerable"), draft.kind, draft.answers) == (True, "unanswerable", ())
    assert find_fault_of_unanswerable(Worded(draft, question)) == fault


# ------------------------------------------------------------------------------------------------------------- reading


class Wavering(Reader):
    """Answers a question that no page answers with the lines of two lists, in turn: with pages, and from memory."""

    def __init__(self, read, known=("I do not know",) * 5):
        super().__init__()
        self.lines = {True: list(read), False: list(known)}
        self.calls = []

    async def reply(self, messages, params):
        asked = messages[-1]["content"]
        if messages[0]["content"].startswith("You answer questions") and asked.endswith(tuple(MISSING.values())):
            shown = asked.rpartition("Question: ")[0]
            self.calls.append((shown, params.temperature))
            return ChatReply(self.lines[bool(shown)].pop(0), "end_of_turn", 2)
        return await super().reply(messages, params)


ONE = {"drafts": 20, "unanswerable": 0.05}  # one question of this kind, and all facts of a page
FIVE = ["Venn", "Oleen", "Ada Brandt", "the mayor", "a miller"]
READ, KNOWN = "unanswerable: answered with the pages found", "unanswerable: answered without the page"


@pytest.mark.parametrize(
    ("read", "known", "reason"),
    [
        (FIVE, FIVE, None),
        (["unknown"] * 5, ["I do not know"] * 5, None),
        (["unknown", "Venn", "unknown", "Oleen", "none"], FIVE, None),
        (["Venn", "The Venn!"], [], READ),  # the same once normalised; no more is asked
        (["Venn", "Oleen", "unknown", "a miller", "Venn"], [], READ),
        (FIVE, ["Venn", "unknown", "venn"], KNOWN),
        (["Venn", *FIVE[1:]], ["Venn", *FIVE[1:]], None),  # once with pages and once without
        (["Venn", ""], [], "unanswerable: a reading failed"),
    ],
)
async def test_a_question_is_kept_if_no_answer_is_read_twice(tmp_path, read, known, reason):
    (page, *_) = PAGES.items()
    reader = Wavering(read, known)
    written = await write(make_index(tmp_path / "one", [page]), reader, **ONE)
    assert [question.question for question in unanswerable(written)] == [MISSING[page[0]]] * (reason is None)
    assert reasons(written) == ({reason} if reason else set())
    assert reader.lines == {True: [], False: []}
    assert [temperature for _, temperature in reader.calls[: len(read)]] == [0.0, *[1.0] * (len(read) - 1)]
    assert reader.calls[len(read) :][:1] == [("", 0.0)] * bool(known)
    if not reason:
        (question,) = unanswerable(written)
        assert (question.answers, question.evidence, question.facts, question.searches) == ((), (), 1, 1)
        assert question.to_question().answers == () and question.scores == {}
    else:
        (record,) = [item for item in written.dropped if item.reason == reason]
        assert (record.question, record.answer) == (MISSING[page[0]], "")


async def test_its_page_is_read_beside_three_that_a_search_finds(tmp_path):
    page = ("Halm Bridge", PAGES["Halm Bridge"])
    others = [("", f"who gave a name to halm bridge {word}") for word in ("again", "often", "once", "twice", "never")]
    index = make_index(tmp_path / "many", [page, *others])
    reader = Wavering(FIVE)
    written = await write(index, reader, **ONE | {"topk": 10})
    (question,) = unanswerable(written)
    assert question.question == MISSING["Halm Bridge"]
    for shown, _ in reader.calls[:5]:
        assert PAGES["Halm Bridge"] in shown and shown.count("who gave a name to halm bridge") == 3


# ------------------------------------------------------------------------------------------------------------- shares


async def test_a_share_of_the_drafts_is_of_this_kind_and_the_others_are_what_they_were(pages_index):
    plain, mixed = Reader(), Reader()
    facts = await write(pages_index, plain, drafts=8)
    both = await write(pages_index, mixed, drafts=16, unanswerable=0.5)
    assert not plain.count("You look for") and mixed.count("You look for") == 8
    found = unanswerable(both)
    assert {question.question for question in found} == set(MISSING.values())  # a page's second one is a duplicate
    assert both.questions == [*facts.questions, *found]
    assert reasons(both) == {"unanswerable: was asked already"}
    assert both.num_drafts == facts.num_drafts + 8
    assert [asked for asked in mixed.asked if asked in plain.asked] == plain.asked


@pytest.mark.parametrize(("seconds", "num"), [(29, (8, 8)), (59, (7, 8)), (61, (3, 8)), (121, (3, 0))])
async def test_each_kind_of_draft_has_its_share_of_the_minutes(pages_index, monkeypatch, seconds, num):
    """4 facts of any pages until 0:30, 4 of pages that others name until 1:00, 8 unanswerable ones until 2:00."""
    monkeypatch.setattr(writer, "_FIRST", 3)
    monkeypatch.setattr(writer, "_BATCH", 2)
    clock = iter([0])
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: next(clock, seconds)))
    reader = Reader()
    await write(pages_index, reader, drafts=16, unanswerable=0.5, minutes=2)
    worded = [asked for part, asked in reader.asked if part == "You write questions" and "the answer is" in asked]
    assert (len(worded) // 3, reader.count("You look for")) == num


def test_the_number_of_drafts():
    for share, drafts, expected in ((0.0, 40, (0, 40)), (0.25, 40, (10, 30)), (0.99, 40, (39, 1)), (0.9, 1, (0, 1))):
        settings = WriterSettings(drafts=drafts, unanswerable=share)
        assert (settings.num_unanswerable, settings.num_facts) == expected
