"""Questions out of a person's own documents: spans by rules, wording by a model, checks that only proven ones pass."""

import json
import re
from types import SimpleNamespace

import pytest

from quaere.errors import BadInput
from quaere.policies.sampler import ChatReply
from quaere.records import Answer, Passage
from quaere.rollout.policy import ChatPolicy
from quaere.search.index import build_index
from quaere.warmup.documents.askable_facts import draw_facts, find_facts, page_name
from quaere.warmup.documents.checks import find_fault, shares_words
from quaere.warmup.documents.drafts import single_drafts
from quaere.warmup.documents.links import Link, Pages
from quaere.warmup.documents.prompts import OneLine
from quaere.warmup.documents.writer import WriterSettings, write_questions
from quaere.worlds.dice import Dice

PAGES = {
    "Halm Bridge": "Halm Bridge crosses the River Oss near the old mill. It was built by Orsolya Venn for the town.",
    "Orsolya Venn": "Orsolya Venn (4 May 1671 – 1740) was a mason of the coast. She was born in Korrin Vale.",
    "Marta Oleen": "Marta Oleen (12 June 1690 – 1755) was a painter of great ceilings. She was born in Korrin Vale.",
    "Ada Brandt": "Ada Brandt (3 March 1702 – 1771) was a pilot of small boats. She was born in Sall Haven.",
    "Ferrin Hall": "Ferrin Hall was finished after many years. Its ceiling was painted by Marta Oleen for nothing.",
}


def passage(title, text):
    return Passage(f"{title}#0", title, title, text, 0, len(text))


@pytest.fixture(scope="module")
def pages_index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rows = [{"id": title, "title": title, "text": text} for title, text in PAGES.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build_index(folder / "corpus.jsonl", folder / "index")


# -------------------------------------------------------------------------------------------------------------- facts


def test_spans_are_whole_short_and_share_no_word_with_the_title():
    page = passage("Orsolya Venn", PAGES["Orsolya Venn"])
    facts = list(find_facts(page))
    assert {(fact.kind, fact.answer) for fact in facts} == {
        ("date", "4 May 1671"),
        ("date", "1740"),
        ("description", "mason"),
        ("name", "Korrin Vale"),
    }
    for fact in facts:
        assert page.text[fact.start : fact.end] == fact.answer
        assert fact.evidence.text == page.text[fact.evidence.start : fact.evidence.end]
        assert fact.answer in fact.evidence.text


def test_a_name_before_a_date_is_asked_about_and_the_month_inside_it_is_not():
    page = passage("Halm Bridge", "Orsolya Venn built it on 4 May 1702 for the whole town.")
    assert {(fact.kind, fact.answer) for fact in find_facts(page)} == {("name", "Orsolya Venn"), ("date", "4 May 1702")}


def test_an_answer_has_six_words_at_most():
    six = "Ada Maria Brandt Oleen Venn Korrin"
    for name, answers in ((six, [six]), (f"{six} Sall", [])):
        page = passage("Halm Bridge", f"It was built by {name} for the town.")
        assert [fact.answer for fact in find_facts(page)] == answers


def test_a_sentence_that_was_cut_is_not_asked_about():
    cut = passage("Halm", "built by Orsolya Venn in the year of the flood. Later it was rebuilt by Marta Oleen and")
    assert list(find_facts(cut)) == []


def test_a_page_without_a_name_is_not_asked_about():
    assert page_name("Halm (river)") == page_name("Halm - History") == "Halm"
    assert page_name("Saint-Malo") == "Saint-Malo" and page_name("notes_2.md") == ""
    assert list(find_facts(passage("notes_2.md", PAGES["Halm Bridge"]))) == []


def test_a_date_may_be_answered_by_its_year_if_the_year_is_asked_for():
    fact = next(fact for fact in find_facts(passage("Orsolya Venn", PAGES["Orsolya Venn"])) if fact.kind == "date")
    assert fact.accept("In which year was Orsolya Venn born?") == ("1671", "4 May 1671")
    assert fact.accept("When was Orsolya Venn born?") == ("4 May 1671",)


def test_facts_are_drawn_from_different_sentences_and_repeat_for_a_seed():
    page = passage("Orsolya Venn", PAGES["Orsolya Venn"])
    drawn = draw_facts(page, Dice(3), 5)
    assert len({fact.sentence_start for fact in drawn}) == len(drawn) == 2
    assert drawn == draw_facts(page, Dice(3), 5)


# -------------------------------------------------------------------------------------------------------------- links


def test_links_are_whole_names_of_other_pages(pages_index):
    pages = Pages(pages_index)
    found = [
        (link.page, PAGES["Halm Bridge"][link.start : link.end]) for link in pages.links(pages.of("Halm Bridge")[0])
    ]
    assert found == [("Orsolya Venn", "Orsolya Venn")]
    assert list(pages.links(passage("Essay", "Venn and Orsolya Vennings built Halm Bridges."))) == []
    (last,) = pages.links(passage("Essay", "It was built by Orsolya Venn"))
    assert last == Link(16, 28, "Orsolya Venn")


def test_a_text_may_end_with_a_name_that_is_shorter_than_others():
    named = [passage(title, "") for title in ("Old Halm Bridge", "Halm Bridge", "Halm")]
    pages = Pages(SimpleNamespace(passages=lambda: named))
    for title in ("Old Halm Bridge", "Halm Bridge", "Halm"):
        essay = passage("Essay", f"The road leads to {title}")
        assert list(pages.links(essay)) == [Link(18, len(essay.text), title)]


def test_no_more_facts_are_drafted_than_were_asked_for(pages_index):
    pages = Pages(pages_index)
    assert [len(single_drafts(pages, num, seed=1)) for num in (0, 1, 2, 3)] == [0, 1, 2, 3]


# ------------------------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("question", "fault"),
    [
        ("Who built Halm Bridge?", ""),
        ("Who built it for the town?", "does not name what it is about"),
        ("Which Venn built Halm Bridge?", "gives its answer away"),
        ("Halm Bridge was built by her.", "is not one question"),
        ("Who built Halm Bridge? And when?", "is not one question"),
        ("Who built Halm Bridge according to the text?", "speaks of a text"),
    ],
)
def test_rules_refuse_what_cannot_stand_alone(question, fault):
    assert find_fault(question, names=("Halm Bridge",), answer="Orsolya Venn") == fault


def test_a_chain_must_not_name_what_it_describes():
    found = find_fault(
        "Where was the Venn who built Halm Bridge born?", names=("Halm Bridge",), answer="Sall", hidden="Orsolya Venn"
    )
    assert found == "names what it should describe"


def test_words_of_names_that_must_stand_there_are_no_leak():
    assert not shares_words("In which county lies Halm Bridge?", "County of Halm", ["Halm Bridge", "county"])
    assert shares_words("Which Venn built Halm?", "Orsolya Venn", ["Halm"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (' "Who built it?" \nMore', "Who built it?"),
        ('the singer of "Low Water"', 'the singer of "Low Water"'),
        ('"Low Water" and "Grey Coast"', '"Low Water" and "Grey Coast"'),
        ("Question: Who built it?", "Who built it?"),
    ],
)
def test_quotation_marks_around_a_line_are_not_part_of_it_and_those_of_a_title_are(text, line):
    assert OneLine([]).read(text) == Answer(line)


# ------------------------------------------------------------------------------------------------------------- writing

WORDINGS = {
    ("Halm Bridge", "Orsolya Venn"): "Who built Halm Bridge?",
    ("Halm Bridge", "River Oss"): "What does Halm Bridge cross?",
    ("Orsolya Venn", "4 May 1671"): "When was Orsolya Venn born?",
    ("Orsolya Venn", "1740"): "In which year did Orsolya Venn die in 1740?",  # gives its answer away
    ("Orsolya Venn", "mason"): "What was the trade of Orsolya Venn?",
    ("Orsolya Venn", "Korrin Vale"): "Where was Orsolya Venn born?",
    ("Marta Oleen", "12 June 1690"): "When was Marta Oleen born?",
    ("Marta Oleen", "1755"): "When did Marta Oleen die?",
    ("Marta Oleen", "painter"): "What was the trade of Marta Oleen?",
    ("Marta Oleen", "Korrin Vale"): "Where was Marta Oleen born?",
    ("Ada Brandt", "3 March 1702"): "When was Ada Brandt born?",
    ("Ada Brandt", "1771"): "When did Ada Brandt die?",
    ("Ada Brandt", "pilot"): "What was the trade of Ada Brandt?",
    ("Ada Brandt", "Sall Haven"): "Where was Ada Brandt born?",
    ("Ferrin Hall", "Marta Oleen"): "Who painted the ceiling of Ferrin Hall?",
}
DESCRIPTIONS = {
    "Who built Halm Bridge?": "The builder of Halm Bridge.",
    "Who painted the ceiling of Ferrin Hall?": "the painter Marta Oleen of Ferrin Hall",  # names what it describes
}
ANSWERS = {question: answer for (_, answer), question in WORDINGS.items()} | {
    "Where was the builder of Halm Bridge born?": "Korrin Vale",
    "What does Halm Bridge cross?": "the mill",  # a question the page does not answer as it should
    "Who or what is the builder of Halm Bridge?": "Orsolya Venn",
}
BORN = {"Orsolya Venn": (1671, "Korrin Vale"), "Marta Oleen": (1690, "Korrin Vale"), "Ada Brandt": (1702, "Sall Haven")}
KNOWN = {"What was the trade of Marta Oleen?"}  # the model knows it by heart


class Reader:
    """An endpoint that words questions from a table, and answers them if it is shown the page."""

    name = "reader"

    def __init__(self):
        self.num_calls = 0

    async def reply(self, messages, params):
        self.num_calls += 1
        system, asked = messages[0]["content"], messages[-1]["content"]
        return ChatReply(self.answer(asked) if "answer quiz" in system else self.word(asked), "end_of_turn", 5)

    def answer(self, asked):
        shown, _, question = asked.rpartition("Question: ")
        people = [name for name in BORN if name in question]
        if shown and (form := re.match(r"Who was (?:born|the first) (earlier|later)", question)):
            return (min if form[1] == "earlier" else max)(people, key=lambda name: BORN[name][0])
        if shown and question.startswith("Were "):
            return "yes" if len({BORN[name][1] for name in people}) == 1 else "no"
        return ANSWERS.get(question, "?") if shown or question in KNOWN else "I do not know"

    def word(self, asked):
        if asked.startswith("Question: "):
            return DESCRIPTIONS.get(re.match(r"Question: (.*)", asked)[1], "No?")
        if both := re.match(r"Asked of (.*) and of (.*): (.*)", asked):
            when = re.search(
                r"date (earlier|later)", asked.replace("the date is", "date").replace("is the date", "date")
            )
            if when:
                return f"Who was born {when[1]}, {both[1]} or {both[2]}?"
            return f"Were {both[1]} and {both[2]} born in the same place?" if "born" in both[3] else "Are they?"
        answer, name = re.search(r'the answer is "(.*?)"\.', asked)[1], re.search(r'Name "(.*?)"\.', asked)[1]
        return WORDINGS.get((name, answer), "Is there more to say about it?")

    async def stop(self):
        pass


async def write(index, seed=0, **settings):
    return await write_questions(
        ChatPolicy(Reader()), index, WriterSettings(**{"drafts": 40, "topk": 2, "seed": seed} | settings)
    )


def facts_of(index, seed):
    return {(draft.facts[0].name, draft.answers[0]) for draft in single_drafts(Pages(index), 40, seed)}


async def test_only_proven_questions_are_kept_and_facts_are_put_together(pages_index):
    kept, dropped = {}, set()
    for seed in range(12):  # which of a sentence's spans is asked for is drawn
        written = await write(pages_index, seed)
        kept |= {question.question: question for question in written.questions}
        dropped |= set(written.dropped)
        drafted = facts_of(pages_index, seed)
        singles = {question.question for question in written.questions if question.kind == "single"}
        assert singles == {
            WORDINGS[fact]
            for fact in drafted & set(WORDINGS)
            if fact not in {("Halm Bridge", "River Oss"), ("Orsolya Venn", "1740"), ("Marta Oleen", "painter")}
        }
    assert {
        "single: gives its answer away",
        "single: not answered with the page",
        "single: answered without the page",
        "description: gives its answer away",
    } <= dropped
    chain = kept["Where was the builder of Halm Bridge born?"]
    assert (chain.kind, chain.facts, chain.answers) == ("chain", 2, ("Korrin Vale",))
    assert [span.doc_id for span in chain.evidence] == ["Halm Bridge", "Orsolya Venn"]
    assert "Korrin Vale" in chain.evidence[1].text
    compared = [question for question in kept.values() if question.kind == "comparison"]
    assert compared
    for question in compared:
        names = sorted((name for name in BORN if name in question.question), key=lambda name: BORN[name][0])
        assert question.answers == ((names[0] if "earlier" in question.question else names[1]),)
    agreed = [question.answers for question in kept.values() if question.kind == "agreement"]
    assert set(agreed) == {("yes",), ("no",)}  # as many of each, or a template would tell the answer


async def test_searches_needed_are_counted_by_what_one_search_finds(pages_index):
    for seed in range(12):
        for question in (await write(pages_index, seed)).questions:
            found = {hit.passage.doc_id for hit in pages_index.search([question.question], 2)[0]}
            reached = question.evidence[-1].doc_id in found
            assert question.searches == (1 if question.facts == 1 or reached else 2)


async def test_a_chain_whose_second_page_no_search_with_it_finds_needs_two_searches(pages_index):
    written = await write(pages_index, topk=1)
    (chain,) = [question for question in written.questions if question.kind == "chain"]
    assert chain.question == "Where was the builder of Halm Bridge born?"  # which finds the bridge and not its builder
    given = chain.to_question()
    assert (given.text, given.answers, given.evidence) == (chain.question, ("Korrin Vale",), chain.evidence)
    assert (given.facts, given.searches) == (2, 2)
    assert {question.to_question().searches for question in written.questions if question.kind == "single"} == {1}


@pytest.mark.parametrize(("num_right", "scores"), [(3, {0.6}), (2, set())])
async def test_three_of_five_answers_with_the_page_must_be_right_unless_set_otherwise(pages_index, num_right, scores):
    """The documented thresholds: `--min-right` (3) of `--tries` (5)."""

    class Wavering(Reader):
        """Right the first few times it is shown the page."""

        def __init__(self):
            super().__init__()
            self.times = {}

        def answer(self, asked):
            self.times[asked] = self.times.get(asked, 0) + 1
            return super().answer(asked) if self.times[asked] <= num_right else "?"

    settings = WriterSettings(drafts=40, topk=2)
    written = await write_questions(ChatPolicy(Wavering()), pages_index, settings)
    assert {question.scores["with_page"] for question in written.questions} == scores


async def test_a_wording_that_the_rules_refuse_is_asked_for_once_more(pages_index):
    class Forgetful(Reader):
        """Leaves the name out of the first line it writes about anything, and always that of Ferrin Hall."""

        def __init__(self):
            super().__init__()
            self.asked = {}

        def word(self, asked):
            self.asked[asked] = self.asked.get(asked, 0) + 1
            first = self.asked[asked] == 1 or '"Ferrin Hall"' in asked
            return "Who built the thing by the river?" if first and asked.startswith("Title: ") else super().word(asked)

    reader, settings = Forgetful(), WriterSettings(drafts=40, topk=2)
    written = await write_questions(ChatPolicy(reader), pages_index, settings)
    worded = {asked: times for asked, times in reader.asked.items() if asked.startswith("Title: ")}
    assert set(worded.values()) == {2}  # no third time
    assert [question.question for question in written.questions if question.kind == "single"] == [
        question.question
        for question in (await write(pages_index)).questions
        if question.kind == "single" and "Ferrin Hall" not in question.question
    ]


async def test_the_same_seed_gives_the_same_questions(pages_index):
    assert (await write(pages_index, 5)).questions == (await write(pages_index, 5)).questions


async def test_documents_without_titles_are_refused(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "n", "title": "", "text": PAGES["Halm Bridge"]}) + "\n")
    with pytest.raises(BadInput, match="no document of the index has both a title"):
        await write(build_index(tmp_path / "corpus.jsonl", tmp_path / "index"))


async def test_settings_that_keep_nothing_are_refused(pages_index):
    with pytest.raises(BadInput, match="min_right"):
        await write(pages_index, tries=2, min_right=3)
