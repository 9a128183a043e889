"""Chains: a name in a checked question gives way to what another document says of it."""

import json

import pytest
from msgspec import structs
from reading_endpoint import ANSWERS, DESCRIPTIONS, PAGES, WORDINGS, Reader, singles, write

from quaere.records import Passage
from quaere.rollout.policy import ChatPolicy
from quaere.search.index_build import build_index
from quaere.warmup.documents import writer
from quaere.warmup.documents.askable_facts import Fact
from quaere.warmup.documents.chains import (
    Bridge,
    chain,
    clean_description,
    find_bridges,
    find_description_fault,
    find_handles,
    iterate_chains,
    iterate_named,
)
from quaere.warmup.documents.checked_question import Draft, Worded, WriterSettings


def make_index(folder, pages):
    rows = [{"id": title, "title": title, "text": text} for title, text in pages.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build_index(folder / "corpus.jsonl", folder / "index")


def asked(question, answer, text, title="", kind="name", heading=""):
    """A kept question, the answer of which stands in this text."""
    passage = Passage(f"{title}#0", title, title, text, 0, len(text), heading=heading)
    start = text.rindex(answer)
    fact = Fact(f"{title}:{start}", passage, title, text, 0, start, start + len(answer), kind)
    return Worded(Draft(fact.id, "single", (fact,), (answer,)), question)


# A search for who was born where, or for a trade, finds this page first if it names nobody.
REGISTER = "Whoever was born here is in it, and each trade. The register lists those born and those of a trade."
LISTED = PAGES | {"Register": REGISTER}

VENN = asked("When was Orsolya Venn born?", "4 May 1671", PAGES["Orsolya Venn"], "Orsolya Venn", "date")
PLACE = asked("Where was Orsolya Venn born?", "Korrin Vale", PAGES["Orsolya Venn"], "Orsolya Venn")
BRIDGE = asked("Who built Halm Bridge?", "Orsolya Venn", PAGES["Halm Bridge"], "Halm Bridge").fact


# ------------------------------------------------------------------------------------------------------------- handles


@pytest.mark.parametrize(
    ("question", "text", "title", "heading", "handles"),
    [
        ("When was Orsolya Venn born?", PAGES["Orsolya Venn"], "Orsolya Venn", "", ["Orsolya Venn"]),
        ("Was Orsolya Venn the daughter of Orsolya Venn?", PAGES["Orsolya Venn"], "Orsolya Venn", "", []),  # twice
        ("Who wrote of Orsolya Vennings?", PAGES["Orsolya Venn"], "Orsolya Venn", "", []),
        ("What does idle_timeout close?", "The setting idle_timeout closes 90 things.", "", "", ["idle_timeout"]),
        ("What does --keep-going skip?", "With --keep-going it skips 90 things.", "", "", ["--keep-going"]),
        ("How long is Restoring done?", "It goes on for 90 seconds.", "manual.md", "Usage > Restoring", ["Restoring"]),
        (
            "What did the Halm Bridge cross?",
            "The Halm Bridge crosses the 90 Oss.",
            "The Halm Bridge",
            "",
            ["Halm Bridge"],
        ),
        ("How long is Oss closed?", "The Oss is closed for 90 days.", "Oss", "", []),  # too short for a name
        ("How long is Ferrin closed?", "The road is closed for 90 days.", "", "", []),  # the passage does not name it
    ],
)
def test_names_by_which_others_may_speak_of_the_same_thing(question, text, title, heading, handles):
    answer = "90" if "90" in text else "4 May 1671"
    assert find_handles(asked(question, answer, text, title, heading=heading)) == handles


# --------------------------------------------------------------------------------------------------------------- links


def test_another_document_that_names_it_leads_to_it(tmp_path):
    (link,) = find_bridges([PLACE], make_index(tmp_path, LISTED), 1)
    assert (link.fact.name, link.fact.answer, link.second) == ("Halm Bridge", "Orsolya Venn", PLACE)
    text = PAGES["Halm Bridge"]
    assert text[link.fact.start : link.fact.end] == "Orsolya Venn" and link.fact.sentence == text.split(". ")[1]
    assert chain(link, "the builder of Halm Bridge").draft.id == f"{link.fact.id}>{PLACE.fact.id}"


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Halm Bridge", "It was built by Orsolya Venn of Korrin Vale for the town."),  # tells the answer
        ("Korrin Vale", "It is proud of Orsolya Venn who built bridges."),  # is the answer
        ("Life of Orsolya Venn", "It is told that Orsolya Venn built bridges."),  # is about her
        ("Halm Bridge", "It was built by Orsolya Vennings for the town."),
    ],
)
def test_a_passage_that_tells_the_answer_or_is_about_the_name_itself_leads_nowhere(tmp_path, title, text):
    pages = {"Orsolya Venn": PAGES["Orsolya Venn"], "Register": REGISTER, title: text}
    pages["Sall Mill"] = "It was built by Orsolya Venn for the town."
    (link,) = find_bridges([PLACE], make_index(tmp_path, pages), 1)
    assert link.fact.passage.title == "Sall Mill"


def test_the_document_of_the_answer_does_not_lead_to_itself(tmp_path):
    for doc_id, num in (("Orsolya Venn", 0), ("letters", 1)):
        texts = {"Orsolya Venn": PAGES["Orsolya Venn"], "Register": REGISTER}
        texts[doc_id] = "She signed as Orsolya Venn all her life."
        rows = [{"id": name, "title": "Letters", "text": text} for name, text in texts.items()]
        (tmp_path / f"{num}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert len(find_bridges([PLACE], build_index(tmp_path / f"{num}.jsonl", tmp_path / f"index{num}"), 1)) == num


def test_eight_passages_describe_one_name_at_most(tmp_path):
    for num_more, num in ((6, 7), (9, 8)):
        more = {f"Bridge {number}": "It was built by Orsolya Venn for the town." for number in range(num_more)}
        (tmp_path / f"{num}").mkdir()
        links = find_bridges([PLACE], make_index(tmp_path / f"{num}", LISTED | more), 1)
        assert len({link.fact.passage.id for link in links}) == len(links) == num


def test_a_question_that_finds_its_passage_without_the_name_makes_no_link(tmp_path):
    """The register is found first; the page of the answer comes second, and with its trade first."""
    index = make_index(tmp_path, LISTED)
    nameless = [hit.passage.doc_id for hit in index.search(["Where was born?"], 2)[0]]
    assert nameless == ["Register", "Orsolya Venn"]
    assert [len(find_bridges([PLACE], index, topk)) for topk in (1, 2)] == [1, 0]
    mason = asked("Where was the mason Orsolya Venn born?", "Korrin Vale", PAGES["Orsolya Venn"], "Orsolya Venn")
    assert find_bridges([mason], index, 1) == []
    assert [link.second for link in find_bridges([mason, PLACE], index, 1)] == [PLACE]


TOWER = {
    "Halm Bridge": "Halm Bridge has a tower. The Halm Bridge Tower was closed on 4 May 1702 for good.",
    "Walks": "A walk leads past the Halm Bridge Tower to the sea.",
    "Closings": "Tower closed, bridge closed, tower closed: whatever is closed is listed here.",
}
CLOSED = "When was the Halm Bridge Tower closed?"


def test_links_of_two_names_that_begin_at_one_place_have_ids_of_their_own(tmp_path):
    closed = asked(CLOSED, "4 May 1702", TOWER["Halm Bridge"], "Halm Bridge", "date")
    one, other = find_bridges([closed], make_index(tmp_path, TOWER), 1)
    assert (one.fact.answer, other.fact.answer) == ("Halm Bridge", "Halm Bridge Tower")
    assert one.fact.start == other.fact.start and one.second == other.second
    assert one.fact.id != other.fact.id


async def test_all_questions_that_are_written_have_ids_of_their_own(tmp_path):
    """Both names of a question are described by one passage, in which they begin at one place."""
    chains = {
        "Halm Bridge": "When was the crossing on the walk to the sea Tower closed?",
        "Halm Bridge Tower": "When was the building on the walk to the sea closed?",
    }
    descriptions = {"Halm Bridge": "the crossing on the walk to the sea"}
    descriptions["Halm Bridge Tower"] = "the building on the walk to the sea"
    answers = {f"Who or what is {text}?": name for name, text in descriptions.items()}
    answers |= dict.fromkeys((CLOSED, *chains.values()), "4 May 1702")
    wordings = {("Halm Bridge", "4 May 1702"): CLOSED}
    reader = Reader(wordings=wordings, descriptions=descriptions, answers=answers)
    written = await write(make_index(tmp_path, TOWER), reader, topk=1)
    assert {item.question for item in written.questions} == {CLOSED, *chains.values()}
    assert len({item.id for item in written.questions}) == len(written.questions) == 3


# ---------------------------------------------------------------------------------------------------------- hyperlinks

WALK = "A walk leads from the town to what [Venn the Mason](venn.md) built there."


def make_linked_index(folder, walk, more=()):
    """Files; no text but hers has her name."""
    texts = {"venn": f"# Orsolya Venn\n\n{PAGES['Orsolya Venn']}", "register": f"# Register\n\n{REGISTER}"}
    for name, text in {**texts, "walks": f"# Walks\n\n{walk}", **dict(more)}.items():
        (folder / f"{name}.md").write_text(text)
    return build_index(folder, folder / "index")


def find_linked(index):
    """The links of a question about her, whose passage is one of the index."""
    (place,) = (passage for passage in index.passages() if passage.doc_id == "venn.md")
    fact = structs.replace(
        PLACE.fact, passage=place, start=place.text.index("Korrin"), end=place.text.index("Vale") + 4
    )
    return find_bridges([Worded(Draft("place", "single", (fact,), PLACE.answers), PLACE.question)], index, 1)


def test_a_hyperlink_leads_to_its_page_by_whatever_name(tmp_path):
    (link,) = find_linked(make_linked_index(tmp_path, WALK))
    assert (link.fact.answer, link.name, link.fact.passage.doc_id) == ("Venn the Mason", "Orsolya Venn", "walks.md")
    assert link.fact.passage.text[link.fact.start : link.fact.end] == "Venn the Mason"
    assert link.fact.sentence == WALK and not find_description_fault("the builder of the walk", link.fact.answer)
    made = chain(link, "the builder of what the walk leads to")
    assert made.question == "Where was the builder of what the walk leads to born?"
    assert (made.answers, made.draft.hidden) == (("Korrin Vale",), "Orsolya Venn")


def test_the_name_of_the_page_in_small_letters_is_a_name_too(tmp_path):
    (link,) = find_linked(make_linked_index(tmp_path, WALK.replace("Venn the Mason", "orsolya venn")))
    assert (link.fact.answer, link.name) == ("orsolya venn", "Orsolya Venn")


@pytest.mark.parametrize(
    "walk",
    [
        WALK.replace("(venn.md)", "(register.md)"),
        WALK.replace("(venn.md)", "(venn.md#born)"),  # a part of her page is another thing
        WALK.replace("Venn the Mason", "this page"),
        WALK.replace("Venn the Mason", "Section 2.1"),
        WALK.replace("Venn the Mason", "venn_mason"),
        WALK.replace("town", "town of Korrin Vale"),  # tells the answer
        WALK.replace("Venn the Mason", "The Long and Old Life of Venn"),  # of more words than a name
        "See also [Venn the Mason](venn.md), [Halm](halm.md).",
    ],
)
def test_a_hyperlink_that_names_or_describes_nothing_makes_no_link(tmp_path, walk):
    assert find_linked(make_linked_index(tmp_path, walk)) == []


def test_hyperlinks_come_first_and_each_passage_once(tmp_path):
    more = {f"bridge{number}": f"# Bridge {number}\n\nIt was built by Orsolya Venn. More." for number in range(9)}
    walk = f"Orsolya Venn, of whom all speak. {WALK.replace('Venn the Mason', 'Orsolya Venn, mason')}"
    links = find_linked(make_linked_index(tmp_path, walk, more))
    assert len(links) == 8 and [link.fact.passage.doc_id for link in links].count("walks.md") == 1
    assert links[0].fact.answer == "Orsolya Venn" and links[0].fact.sentence.startswith("A walk leads")


async def test_a_chain_is_written_through_a_hyperlink(tmp_path):
    described = "the builder of what a walk from the town leads to"
    asks = f"Where was {described} born?"
    told = {f"Who or what is {described}?": "Venn the Mason", asks: "Korrin Vale"}
    reader = Reader(descriptions={"Venn the Mason": described}, answers=ANSWERS | told)
    written = await write(make_linked_index(tmp_path, WALK), reader, topk=1)
    (question,) = (item for item in written.questions if item.kind == "chain")
    assert (question.question, question.answers) == (asks, ("Korrin Vale",))
    assert [span.doc_id for span in question.evidence] == ["walks.md", "venn.md"]


# -------------------------------------------------------------------------------------------------------------- chains


def test_a_chain_describes_the_name_that_leads_on():
    made = chain(Bridge(BRIDGE, VENN, "Orsolya Venn"), "the builder of Halm Bridge")
    assert made.question == "When was the builder of Halm Bridge born?"
    assert (made.answers, made.draft.kind, made.draft.hidden) == (("4 May 1671",), "chain", "Orsolya Venn")
    assert made.draft.facts == (BRIDGE, VENN.fact) and made.draft.told_by == (VENN.fact,)


def test_a_description_brings_its_own_article_and_may_begin_a_question():
    bridge = asked("Which bridge stands in Sall?", "Halm Bridge", "In Sall stands the Halm Bridge.", "Sall").fact
    for question, chained in (
        ("What does the Halm Bridge cross?", "What does the bridge that stands in Sall cross?"),
        ("Halm Bridge crosses which river?", "The bridge that stands in Sall crosses which river?"),
    ):
        crossed = asked(question, "Oss", PAGES["Halm Bridge"], "Halm Bridge")
        assert chain(Bridge(bridge, crossed, "Halm Bridge"), "the bridge that stands in Sall").question == chained


def test_a_description_with_a_word_of_the_answer_makes_no_chain():
    assert chain(Bridge(BRIDGE, PLACE, "Orsolya Venn"), "the builder from Korrin of Halm Bridge") is None
    assert chain(Bridge(BRIDGE, PLACE, "Orsolya Venn"), "the builder of Halm Bridge")


def test_a_name_that_stands_twice_or_in_another_word_is_not_replaced():
    for question in ("Was Orsolya Venn the daughter of Orsolya Venn?", "Who wrote of Orsolya Vennings?"):
        second = asked(question, "Korrin Vale", PAGES["Orsolya Venn"], "Orsolya Venn")
        assert chain(Bridge(BRIDGE, second, "Orsolya Venn"), "the builder of Halm Bridge") is None


def test_one_description_serves_all_questions_about_its_name():
    links = [Bridge(BRIDGE, VENN, "Orsolya Venn"), Bridge(BRIDGE, PLACE, "Orsolya Venn")]
    made = [item.question for item in iterate_chains(links, {BRIDGE.id: "the builder of Halm Bridge"})]
    assert made == ["When was the builder of Halm Bridge born?", "Where was the builder of Halm Bridge born?"]
    assert list(iterate_chains(links, {})) == []


@pytest.mark.parametrize(
    ("line", "cleaned", "fault"),
    [
        ("The builder of Halm Bridge.", "the builder of Halm Bridge", ""),
        ("An old builder of bridges", "an old builder of bridges", ""),
        ("Orsolya Venn", "Orsolya Venn", "is no description"),
        ("Who built Halm Bridge?", "Who built Halm Bridge?", "is no description"),
        ("the builder", "the builder", "is no description"),
        ("the builder: of Halm Bridge", "the builder: of Halm Bridge", "is no description"),
        ("the builder of Halm Bridge and " + "more " * 20, None, "is no description"),
        ('the singer of "Low Water', 'the singer of "Low Water', "is no description"),
        ('the singer of "Low Water"', 'the singer of "Low Water"', ""),
        ("the Venn who built Halm Bridge", "the Venn who built Halm Bridge", "names what it should describe"),
    ],
)
def test_descriptions_can_stand_inside_a_question_and_do_not_name_what_they_describe(line, cleaned, fault):
    assert cleaned in (None, clean_description(line))
    assert find_description_fault(clean_description(line), "Orsolya Venn") == fault


# ------------------------------------------------------------------------------------------------------------- writing


@pytest.fixture(scope="module")
def pages_index(tmp_path_factory):
    return make_index(tmp_path_factory.mktemp("pages"), LISTED)


def found(index, question, topk):
    return {hit.passage.doc_id for hit in index.search([question], topk)[0]}


async def test_every_chain_that_is_kept_needs_two_searches(pages_index):
    kept = {}
    for seed in range(8):  # which of a sentence's spans is asked for is drawn
        for question in (await write(pages_index, seed=seed, topk=1)).questions:
            if question.kind == "chain":
                kept[question.question] = question
            else:
                assert question.kind != "single" or question.searches == 1
    assert {
        "Where was the builder of Halm Bridge born?",
        "When was the builder of Halm Bridge born?",
    } <= set(kept)
    for text, question in kept.items():
        first, last = (span.doc_id for span in question.evidence)
        assert (first, last) == ("Halm Bridge", "Orsolya Venn")
        assert found(pages_index, text, 1) == {"Halm Bridge"}
        assert (question.facts, question.searches, question.hops) == (2, 2, 2)
        assert question.answers[-1] in question.evidence[1].text and "Venn" in question.evidence[0].text
        assert (question.scores["with_page"], question.scores["closed_book"]) == (1.0, 0.0)
        given = question.to_question()
        assert (given.text, given.answers, given.evidence) == (text, question.answers, question.evidence)
        assert (given.facts, given.searches) == (2, 2) and question.deciding == question.evidence[1:]
    assert not any("Ferrin Hall" in text for text in kept)  # its description names the painter


MASON = "Where was the mason Orsolya Venn born?"  # found without the name, since the page says that she was a mason
PLAIN = "Where was Orsolya Venn born?"


@pytest.mark.parametrize(
    ("short", "known", "is_kept"),
    [(PLAIN, (), True), (PLAIN, (PLAIN,), False), (MASON, (), False), ("Where was she born?", (), False)],
)
async def test_of_a_page_that_others_name_a_wording_that_needs_the_name_comes_first(pages_index, short, known, is_kept):
    styles = {"everyday": MASON, "plain": MASON, "short": short}
    reader = Reader(
        wordings=WORDINGS | {("Orsolya Venn", "Korrin Vale"): styles},
        answers=ANSWERS | {MASON: "Korrin Vale"},
        known=known,
    )
    written = await write(pages_index, reader, topk=1)
    asked = [item.question for item in written.questions if item.answers[-1] == "Korrin Vale" and item.kind == "chain"]
    assert asked == ["Where was the builder of Halm Bridge born?"] * is_kept
    kept = singles(written)
    assert (PLAIN in kept, MASON in kept) == (is_kept, not is_kept)


def test_pages_that_other_documents_name(tmp_path):
    pages = PAGES | {
        "Sall Haven (port)": "The port has two piers.",  # others may have the name too
        "Notes": "Korrin Vale and the Mill have Notes. See Halm Bridge Walks.",
        "Korrin Vale": "The vale is long and green.",
        "Mill": "It grinds.",  # a common word
    }
    index = make_index(tmp_path, pages)
    named = {passage.title for passage in iterate_named(list(index.passages()), index)}
    assert named == {"Orsolya Venn", "Marta Oleen", "Korrin Vale", "Halm Bridge"}


async def test_half_of_the_drafts_are_about_pages_that_others_name(pages_index):
    for seed in range(4):
        written = await write(pages_index, Reader(wordings={}), drafts=4, seed=seed)
        pages = [dropped.id.partition("#")[0] for dropped in written.dropped]
        assert len(pages) == written.num_drafts == 4
        assert sum(page in ("Orsolya Venn", "Marta Oleen") for page in pages) >= 2


async def test_named_pages_are_looked_for_among_so_many_passages_and_told_of(pages_index, monkeypatch):
    monkeypatch.setattr(writer, "_LOOKS_PER_NAMED", 1)
    told = []
    settings = WriterSettings(drafts=4)
    policy = ChatPolicy(Reader(wordings={}))
    await writer.write_questions(policy, pages_index, settings, lambda *part: told.append(part))
    assert len(pages_index) > 2 and told[0] == ("looking for pages that others name", 0, 2)


async def test_a_description_that_the_model_calls_unclear_makes_no_chain(pages_index):
    for unclear, num in (((), 1), (("Who or what is the builder of Halm Bridge?",), 0)):
        written = await write(pages_index, Reader(unclear=unclear), topk=1)
        chains = {item.question for item in written.questions if item.kind == "chain"}
        assert ("Where was the builder of Halm Bridge born?" in chains) == bool(num)


async def test_a_chain_must_be_answered_once_only(pages_index):
    """Its parts were checked by themselves; a single fact must be answered greedily, and three times of five."""

    class Forgetful(Reader):
        def __init__(self, once, **tables):
            super().__init__(**tables)
            self.once = once

        def answer(self, shown, question):
            read = super().answer(shown, question)
            earlier = sum(asked.endswith(question) for part, asked in self.asked if part == "You answer questions")
            return "?" if question == self.once and shown and earlier != 2 else read

    chained = "Where was the builder of Halm Bridge born?"
    for once, is_kept in ((chained, True), (PLAIN, False)):
        written = await write(pages_index, Forgetful(once), topk=1)
        assert (once in [item.question for item in written.questions]) == is_kept
        assert [item.reason for item in written.dropped if item.question == once] == (
            [] if is_kept else ["single: not answered with the page"]
        )


@pytest.mark.parametrize(
    ("described", "others", "is_kept"),
    [
        ("the builder of Halm Bridge", {}, 1),
        ("the mason of Halm Bridge", {}, 0),
        ("the builder of Halm Bridge", {"Halm Bridge log": "Whoever built it, the stone was of Korrin Vale."}, 0),
    ],
)
async def test_a_chain_that_one_search_answers_is_dropped(tmp_path, described, others, is_kept):
    """A description may have a word of the answer's page, which then comes second: it says that she was a mason.

    Or another page that is found has the answer.
    """
    index = make_index(tmp_path, LISTED | {"Old Register": REGISTER} | others)
    asks = f"Where was {described} born?"
    told = {f"Who or what is {described}?": "Orsolya Venn", asks: "Korrin Vale"}
    written = await write(index, Reader(descriptions={"Orsolya Venn": described}, answers=ANSWERS | told), topk=2)
    assert [item.kind for item in written.questions if item.question == asks] == ["chain"] * is_kept
    dropped = [(item.answer, item.reason) for item in written.dropped if item.question == asks]
    assert dropped == [("Korrin Vale", "chain: one search finds the answer")] * (not is_kept)


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"known": {"Where was the builder of Halm Bridge born?"}}, "chain: answered without the page"),
        (
            {"answers": ANSWERS | {"Where was the builder of Halm Bridge born?": "?"}},
            "chain: not answered with the page",
        ),
        ({"answers": ANSWERS | {"Who or what is the builder of Halm Bridge?": "?"}}, ""),
        ({"descriptions": DESCRIPTIONS | {"Orsolya Venn": "the mason Venn of Halm Bridge"}}, ""),
        ({"descriptions": DESCRIPTIONS | {"Orsolya Venn": "the woman with the hat"}}, ""),
    ],
)
async def test_a_chain_is_dropped_if_it_or_its_description_fails(pages_index, tables, reason):
    def asks_where(written):
        return [item for item in written.questions if item.question == "Where was the builder of Halm Bridge born?"]

    assert asks_where(await write(pages_index, topk=1))
    written = await write(pages_index, Reader(**tables), topk=1)
    assert not asks_where(written)
    reasons = [item.reason for item in written.dropped if item.question == "Where was the builder of Halm Bridge born?"]
    assert reasons == ([reason] if reason else [])


@pytest.mark.parametrize(("described", "num"), [("the mason at the old mill", 1), ("the mason of great ceilings", 0)])
async def test_a_description_must_lead_to_the_passage_that_gives_it(pages_index, described, num):
    """Whatever the model answers: a search with "of great ceilings" finds the page of a painter."""
    reader = Reader(
        descriptions={"Orsolya Venn": described},
        answers=ANSWERS
        | {f"Who or what is {described}?": "Orsolya Venn", f"Where was {described} born?": "Korrin Vale"},
    )
    written = await write(pages_index, reader, topk=1)
    chains = [question.question for question in written.questions if question.kind == "chain"]
    assert chains == [f"Where was {described} born?"] * num
