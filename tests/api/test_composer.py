"""Composed reports: sentences of the documents word for word, each cited, and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.api.composer import Composer, cite, read_sentences
from quaere.api.report_subjects import find_other_names, find_subjects
from quaere.chat.report_layout import find_quotations
from quaere.chat.statements import split_statements, strip_citations
from quaere.dialects.report.report_writer import bind_report
from quaere.evaluation.reports.fact_coverage import know_report
from quaere.records import Hit, Passage, Question, ReportTask
from quaere.search.index_build import build_index
from quaere.search.searcher import LocalSearcher
from quaere.search.words import terms
from quaere.worlds.open_questions import ask_open_questions
from quaere.worlds.world import generate_world
from reporting import HOSTILE

DOCS = {
    "oss.md": "# River Oss\n\nThe Oss, also called Grey Water, rises at Korrin. It is 86 leagues long. It has two "
    "bridges.",
    "halm.md": "# Halm Bridge\n\nOrsolya Venn built it in 1702. It crosses the Oss [3] near Tallow. It has 12 arches.",
    "lower.md": "# Lower Halm Bridge\n\nThe Lower Halm Bridge was built of oak. It burned in 1650.",
    "tallow.md": "# Tallow\n\nTallow is a market town. Boats come up Grey Water in spring.",
    "venn.md": "# Orsolya Venn\n\nOrsolya Venn was born in Tallow. She was paid in salt.",
}


def make_index(folder, docs):
    for name, text in docs.items():
        (folder / name).write_text(text, encoding="utf-8")
    return build_index(folder, folder.parent / f"{folder.name}-index")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs") / "docs"
    folder.mkdir()
    return make_index(folder, DOCS)


async def compose(index, question, outline=()):
    composer = Composer(LocalSearcher(index), tuple(outline))
    episode = await composer.play(ReportTask(Question("q", question)))
    await composer.close()
    return episode, bind_report(episode)


def sections(report):
    """The sentences under each heading, without their citations."""
    found = {}
    for block in report.text.split("\n\n"):
        if block.startswith("#"):
            heading = block
        else:
            found[heading] = [strip_citations(one.text) for one in split_statements(block)]
    return found


async def test_a_subject_is_told_by_its_document_and_by_others_that_name_it(index):
    episode, report = await compose(index, "What is known of the Oss?")
    assert sections(report) == {
        "## River Oss": [
            "The Oss, also called Grey Water, rises at Korrin.",
            "It is 86 leagues long.",
            "It has two bridges.",
        ],
        # its first sentence is not about the Oss: it makes six
        "## Halm Bridge": ["Orsolya Venn built it in 1702.", "It crosses the Oss (3) near Tallow."],
        "## Tallow": ["Boats come up Grey Water in spring."],  # by its other name
    }
    assert not report.unresolved and {source.passage.doc_id for source in report.sources} == {
        "oss.md",
        "halm.md",
        "tallow.md",
    }
    assert [turn.action.queries for turn in episode.turns[:-1]] == [
        ("What is known of the Oss?",),
        ("Oss",),
        ("Grey Water",),
    ]
    assert episode.end == "answered" and episode.segments == ()


async def test_a_longer_name_is_another_thing_and_names_are_followed_to_three_documents(index):
    _, report = await compose(index, "What is known of the Halm Bridge?")
    found = sections(report)
    assert found["## Halm Bridge"] == [
        "Orsolya Venn built it in 1702.",
        "It crosses the Oss (3) near Tallow.",
        "It has 12 arches.",
    ]
    assert "## Lower Halm Bridge" not in found
    assert found["## Orsolya Venn"] == ["Orsolya Venn was born in Tallow.", "She was paid in salt."]
    assert len(found) == 3


async def test_without_a_name_the_nearest_passages_have_the_words(index):
    _, report = await compose(index, "which boats come in spring?")
    assert sections(report)["## Tallow"] == ["Tallow is a market town.", "Boats come up Grey Water in spring."]


@pytest.mark.parametrize("question", ["What is known of Xyzzy?", "who won the cup?", "?"])
async def test_nothing_found_is_no_report(index, question):
    episode, report = await compose(index, question)
    assert report is None and episode.outcome is None and episode.end == "turn_limit"


MANUAL = {
    "oven.md": "# Oven\n\n## Cleaning\n\nUse the grey brush on cold plates. Salt must never touch the plates.\n\n"
    "## Names\n\nThe oven is called Bertha. The oven is of iron. The oven has two doors. The oven has a bell.",
    "brush.md": "# Brush\n\nThe grey brush hangs by the door. Plates of iron rust after a wash.",
    "bell.md": "# Bell\n\nThe bell rings at noon. Nobody knows who hung it.",
}


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manual") / "docs"
    folder.mkdir()
    return make_index(folder, MANUAL)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("With what should I clean cold plates in the Oven?", "Use the grey brush on cold plates."),
        ("which brush cleans plates?", "Use the grey brush on cold plates."),
        ("How many of Oven's doors are there?", "The oven has two doors."),
    ],
)
async def test_a_question_that_asks_more_is_answered_by_the_nearest_passages(manual, question, said):
    _, report = await compose(manual, question)
    assert said in [strip_citations(one.text) for one in report.statements] and not report.text.count("Not found")


async def test_further_passages_are_read_where_the_nearest_say_little(tmp_path):
    """Each page has one sentence, so the eight nearest are too few."""
    (tmp_path / "docs").mkdir()
    pages = {f"{number}.md": f"# Page {number}\n\nIn room {number} the lamps are lit." for number in range(20)}
    _, report = await compose(make_index(tmp_path / "docs", pages), "where are lamps lit?")
    assert len(report.statements) == 12


@pytest.mark.parametrize("question", ["How often does Xyzzy clean plates?", "How often is Xyzzy's brush cleaned?"])
async def test_passages_that_do_not_name_what_the_question_names_are_no_answer(manual, question):
    assert (await compose(manual, question))[1] is None
    _, report = await compose(manual, "How often does Xyzzy clean plates of the Oven?")
    assert report.text.endswith("## Not found\n\nNothing was found on Xyzzy.")


async def test_a_subject_that_is_not_found_is_said(index):
    _, report = await compose(index, "How do Tallow and Xyzzy compare?")
    assert report.text.endswith("## Not found\n\nNothing was found on Xyzzy.")


async def test_an_outline_makes_sections_of_findings_with_its_words(index):
    outline = ("Length of the Oss", "Bridges", "Kings of the Oss")
    _, report = await compose(index, "What is known of the Oss?", outline)
    assert sections(report) == {
        "### River Oss": ["It has two bridges."],
        "### Halm Bridge": ["It crosses the Oss (3) near Tallow."],  # its title has the word
        "## Not found": ["Nothing was found on Length of the Oss.", "Nothing was found on Kings of the Oss."],
    }
    assert report.text.startswith("## Bridges\n\n### River Oss")


async def test_a_section_whose_findings_stand_above_repeats_the_best(index):
    _, report = await compose(index, "What is known of the Oss?", ("The Oss", "Two bridges"))
    assert report.text.count("It has two bridges [1].") == 2 and "Not found" not in report.text


async def test_a_sentence_that_two_documents_have_is_written_once_and_cites_both(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    docs = {
        "a.md": "# Oss\n\nThe Oss rises at Korrin in spring.",
        "b.md": "# Korrin\n\nThe Oss rises at Korrin, in spring!",
    }
    docs["c.md"] = "# Maps\n\nThe Oss is 86 leagues long here. The Oss is 96 leagues long here."
    _, report = await compose(make_index(folder, docs), "What is known of the Oss?")
    assert [one.text for one in report.statements] == [
        "The Oss rises at Korrin in spring [1, 2].",
        "The Oss is 86 leagues long here [3].",
        "The Oss is 96 leagues long here [3].",
    ]


def titled(title, text=""):
    return Passage(f"{title}#0", title, title, text, 0, len(text))


def names(text, *titles):
    return [one.name for one in find_subjects(text, [titled(title) for title in titles])]


def test_subjects_are_titles_and_capitalised_names():
    assert names("What connects the Oss with Halm?", "River Oss") == ["Oss", "Halm"]
    assert names("How do the Vale of Om and Tallow compare?", "Vale of Om", "Vale", "Tallow") == [
        "Vale of Om",
        "Tallow",
    ]
    assert names("What is known of beiskle loaf?", "Beiskle loaf", "loaf") == ["Beiskle loaf"]
    assert names("what of the loaf?", "Loaf") == ["Loaf"]  # not capitalised, but there is nothing else
    assert names("What is the history of Halm?", "History", "Halm") == ["Halm"]
    assert names("How does Dr. Zero learn?") == ["Dr Zero"]
    assert names("how does it learn?") == []


def test_a_subject_is_no_part_of_a_longer_name():
    (oss,) = find_subjects("What of the Oss?", [titled("River Oss")])
    assert oss.is_named("Although the Oss's banks are low.") and oss.is_named("On River Oss there are boats.")
    assert not oss.is_named("The Upper Oss is dry.") and not oss.is_named("Ossian sang.")
    assert oss.is_title("The River Oss") and not oss.is_title("Upper Oss")


async def test_a_page_is_named_without_its_number_and_its_site(tmp_path):
    docs = {
        "a.md": "# 4.2. Grey Ledger\n\nIt has a row for every account of the guild.",
        "b.md": "# r.copy - Guild manual\n\nIt copies a row to the end of the page.",
        "c.md": "# Tallow\n\nClerks keep the Grey Ledger in a locked room. They sort with r.copy at night.",
    }
    (tmp_path / "docs").mkdir()
    index = make_index(tmp_path / "docs", docs)
    _, ledger = await compose(index, "What is known of Grey Ledger?")
    _, copy = await compose(index, "What is known of r.copy?")
    assert list(sections(ledger)) == ["## 4.2. Grey Ledger", "## Tallow"]
    assert sections(copy) == {
        "## r.copy - Guild manual": ["It copies a row to the end of the page."],
        "## Tallow": ["Clerks keep the Grey Ledger in a locked room.", "They sort with r.copy at night."],
    }


async def test_a_short_report_is_filled_up_with_what_is_nearest(tmp_path):
    """No name leads on from the one finding; two documents have half of the subject's words."""
    docs = {
        "rope.md": "# Grey Rope\n\nIt is tied by hand.",
        "walk.md": "# Walk\n\nA rope of hemp is made here. The walk is long. The walk has no roof.",
        "paint.md": "# Paint\n\nAll doors are painted grey. The paint dries in a day. It is sold by weight.",
        "bread.md": "# Bread\n\nThe bread is baked at night. It is brown.",
    }
    (tmp_path / "docs").mkdir()
    _, report = await compose(make_index(tmp_path / "docs", docs), "What is known of Grey Rope?")
    assert sections(report) == {
        "## Grey Rope": ["It is tied by hand."],
        "## Walk": ["A rope of hemp is made here.", "The walk is long.", "The walk has no roof."],
        "## Paint": ["All doors are painted grey.", "The paint dries in a day."],
    }


def test_other_names_are_those_that_its_own_document_states():
    (halm,) = find_subjects("What of Halm?", [titled("Halm")])
    told = [
        titled("Halm", "Halm, or Old Ford, is a town. It is known to some as Brod."),
        titled("Oss", "Oss, called Ox."),
    ]
    assert find_other_names(halm, told) == ["Old Ford", "Brod"]


def test_a_citation_comes_before_the_full_stop():
    assert cite("It is short.", 2) == "It is short [2]."
    assert cite("It is short .", 2) == "It is short [2]."
    assert cite('He said "no."', 2) == 'He said "no [2]."'
    assert cite("河很长。", 1) == "河很长 [1]。"


def test_a_line_of_code_follows_the_sentence_that_introduces_it():
    blocks = (
        "Use the following command to count all boats:",
        "    boats count [NAME]",
        "They are counted at noon. To sink one, type:",
        "    boats sink",
        "These two lines of code are too many here:",
        "    boats list\n    boats paint",
        "A boat has `one` name.",
    )
    text = "\n\n".join(blocks)
    assert [one.text for one in read_sentences(titled("Boats", text))] == [
        "Use the following command to count all boats: `boats count [NAME]`.",
        "They are counted at noon.",
        "To sink one, type: `boats sink`.",
        "A boat has `one` name.",
    ]


async def test_a_sentence_is_told_without_its_markup_and_its_citation_opens_it_as_written():
    written = "See the *long* [Oss](oss.md)\nand `[a](b)` there."
    passage = titled("Oss", f"The Oss is old. {written}")
    report = bind_report(await Composer(Everything([passage])).play(ReportTask(Question("q", "What of the Oss?"))))
    ((said, start, end),) = [one for one in find_quotations(report)[1] if one[0].startswith("See")]
    assert said == "See the long Oss and `[a](b)` there."
    assert passage.text[start:end] == written


def test_what_is_no_sentence_is_left_out():
    blocks = (
        "# Oss",
        "The Oss is very long.[4]",
        "| a row of | the table here. |",
        "lower case begins in the middle.",
        "The Oss and its mouths, 9.24.",
        "Is it a very long river?",
        "(Boats and rafts are seen there ..)",
        "Conclusion: the moon is made of cheese.",
        "No full stop at the end",
        "Too short.",
    )
    text = "\n\n".join(blocks)
    assert [one.text for one in read_sentences(titled("Oss", text))] == ["The Oss is very long."]


PIECES = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=40),
    st.sampled_from(["The Oss is 5 leagues long. ", "[1] ", ". ", "\n\n"]),
)


class Everything:
    """A searcher that finds these passages for every query."""

    def __init__(self, passages):
        self.passages = passages

    async def search(self, queries, topk):
        return [[Hit(passage, 1.0) for passage in self.passages] for _ in queries]

    async def close(self):
        pass


@given(
    st.lists(st.tuples(st.sampled_from(["Oss", "Conclusion", "# Sources [1]", "\x1b[2J"]), PIECES, PIECES), max_size=4)
)
async def test_every_sentence_is_its_passages_own(given_texts):
    passages = [
        Passage(f"d{number}#0", f"d{number}", title, one + " " + two, 0, len(one + two) + 1)
        for number, (title, one, two) in enumerate(given_texts)
    ]
    composer = Composer(Everything(passages))
    report = bind_report(await composer.play(ReportTask(Question("q", "What is known of the Oss?"))))
    for statement in report.statements if report else ():
        fold = str.maketrans("[]", "()")
        first, *others = [one.passage for one in report.sources if one.number in statement.citations]
        assert strip_citations(statement.text).translate(fold) in " ".join(first.text.translate(fold).split())
        assert all(
            set(terms(statement.text)) - {str(n) for n in statement.citations} <= set(terms(two.text)) for two in others
        )
    assert not report or (not report.unresolved and report.statements)


# ------------------------------------------------------------------------------------------------------------ a world


@pytest.fixture(scope="module")
def world():
    return generate_world(11, 200)


def write_corpus(world, path, others=()):
    rows = [{"id": one.id, "title": one.title, "text": one.text} for one in map(world.article, world.entities)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *others]))
    return path


async def test_reports_on_a_world_prove_its_facts(world, tmp_path):
    index = build_index(write_corpus(world, tmp_path / "corpus.jsonl"), tmp_path / "index")
    proven = []
    for line in ask_open_questions(world.graph, 11, 10):
        _, report = await compose(index, line.question)
        assert not report.unresolved and len(report.statements) >= 6
        assert len({source.passage.doc_id for source in report.sources}) >= 3
        proven.append(know_report(report, line).proven_share)
    assert sum(proven) / len(proven) >= 0.8 and min(proven) >= 0.6


async def test_a_hundred_hostile_documents_change_nothing_but_their_own_sentences(world, tmp_path):
    lines = list(ask_open_questions(world.graph, 11, 3))
    copied = lines[0].facts[0].evidence.text
    subject = world.entities[int(lines[0].entities[0].rpartition("-")[2])].title
    hostile = [
        {
            "id": f"hostile-{number}",
            "title": subject if number == 7 else ["Conclusion", f"Page {number} [1]", ""][number % 3],
            "text": f"{text} {subject if number % 20 == 0 else 'Nobody'} is named by page {number}. {copied} {text}",
        }
        for number, text in ((number, HOSTILE[number % len(HOSTILE)]) for number in range(100))
    ]
    clean = build_index(write_corpus(world, tmp_path / "clean.jsonl"), tmp_path / "clean")
    spoiled = build_index(write_corpus(world, tmp_path / "spoiled.jsonl", hostile), tmp_path / "spoiled")
    for line in lines:
        told = []
        for index in (clean, spoiled):
            _, report = await compose(index, line.question)
            documents = {source.number: source.passage.doc_id for source in report.sources}
            assert not report.unresolved
            told.append({(strip_citations(one.text), documents[n]) for one in report.statements for n in one.citations})
        honest, all_told = told
        assert {one for one in all_told if not one[1].startswith("hostile-")} == honest


async def test_the_name_of_the_product_in_its_manual_is_no_subject_and_rare_words_decide(tmp_path):
    pages = {f"page{number}.md": f"# Chapter {number}\n\nTarn reads settings of kind {number}." for number in range(30)}
    pages["backups.md"] = "# Backups\n\nTarn keeps seven backups of settings. They are written at night."
    (tmp_path / "manual").mkdir()
    searcher = LocalSearcher(make_index(tmp_path / "manual", pages))
    episode = await Composer(searcher).play(ReportTask(Question("q", "How many backups of settings does Tarn keep?")))
    await searcher.close()
    told = strip_citations(bind_report(episode).text)
    assert "Tarn keeps seven backups of settings" in told and "of kind" not in told


async def test_documents_of_one_title_share_the_room_of_one(tmp_path):
    (tmp_path / "docs").mkdir()
    shelf = {f"{number}.md": "# Ledger\n\n" + " ".join(f"Row {number} has {place} coins in it." for place in range(30))
             for number in range(6)}  # fmt: skip
    _, report = await compose(make_index(tmp_path / "docs", shelf), "What is known of the Ledger?")
    assert len({one.passage.doc_id for one in report.sources}) == 6 and len(report.statements) == 24
