"""Facts that can be asked about: spans of statements by rules, the links between pages, and which facts are drafted."""

from types import SimpleNamespace

import pytest
from reading_endpoint import PAGES, make_index

from quaere.records import Passage
from quaere.warmup.documents.askable_facts import draw_facts, find_facts, find_spans, page_name
from quaere.warmup.documents.checked_question import draw_drafts
from quaere.warmup.documents.page_names import Pages
from quaere.worlds.dice import Dice


def passage(title, text, doc_id=None):
    doc_id = title if doc_id is None else doc_id
    return Passage(f"{doc_id}#0", doc_id, title, text, 0, len(text))


@pytest.fixture(scope="module")
def pages_index(tmp_path_factory):
    return make_index(tmp_path_factory.mktemp("pages"), PAGES.items())


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


@pytest.mark.parametrize(
    ("sentence", "answers"),
    [
        ("Accounts of type STOCK or FUND display four columns here.", []),
        ('They go into the "Required" or "Options" tab of it.', []),
        ("It is shown by STOCK, or by the fund itself.", []),
        ("It is shown by STOCK (or by the fund itself).", []),
        ("It is shown by STOCK and/or by the fund itself.", []),
        ("Accounts of type STOCK display four columns or fewer.", ["STOCK"]),
        ("The floor of STOCK accounts is shown here.", ["STOCK"]),  # "or" as the end of a word
        ("Accounts of type STOCK and FUND display four columns.", ["STOCK", "FUND"]),
    ],
)
def test_one_of_two_alternatives_is_not_the_answer(sentence, answers):
    assert [fact.answer for fact in find_facts(passage("Notes", sentence)) if fact.kind != "phrase"] == answers


def test_nothing_of_an_example_is_asked_about():
    """Also nothing that follows one: values there are made up."""
    facts = "Files are kept in silver_disk at night."
    for example in (
        "For example, they may be on gold_disk.",
        "EXAMPLES\n\nThey may be kept on gold_disk.",
        "See e.g. them.",
    ):
        said = passage("Notes", f"{facts} {example} Others are kept in iron_disk.")
        assert [fact.answer for fact in find_facts(said)] == ["silver_disk"]
    said = passage("Notes", f"{facts} No counterexample is at halm.example. Others are kept in iron_disk.")
    found = [fact.answer for fact in find_facts(said) if fact.kind == "identifier"]
    assert found == ["silver_disk", "halm.example", "iron_disk"]


@pytest.mark.parametrize(
    ("doc_id", "is_asked"), [("lxd/faq.md", 0), ("notes/lxd/faq.md", 0), ("lxd.md", 1), ("lxd-notes/faq.md", 1)]
)
def test_the_name_of_the_folder_is_not_the_answer(doc_id, is_asked):
    facts = find_facts(passage("Limits", "Every container is limited by LXD alone.", doc_id))
    assert [fact.answer for fact in facts if fact.kind == "identifier"] == ["LXD"] * is_asked


def test_phrases_are_drawn_seldom():
    """Ten to one, by the weights: of two statements, and of two spans of one."""
    two = passage("Notes", "To go on press the green button. Files lie on silver_disk there.")
    one = passage("Notes", "If you press the green button, silver_disk is used.")
    for page in (two, one):
        assert {fact.kind for fact in find_facts(page)} == {"phrase", "identifier"}
        first = [draw_facts(page, Dice(seed), 1)[0].kind for seed in range(600)]
        assert 25 <= first.count("phrase") <= 90  # expected 600 / 11


def test_the_name_of_a_page_is_its_title_if_that_is_a_name_which_the_text_uses():
    assert page_name("Halm (river)") == page_name("Halm - History") == page_name("20.5. Halm") == "Halm"
    assert page_name("Saint-Malo") == "Saint-Malo" and page_name("notes_2.md") == ""
    text = PAGES["Halm Bridge"]
    for title, name in (("Halm Bridge", "Halm Bridge"), ("The Halm", "The Halm"), ("Sall", ""), ("notes_2.md", "")):
        facts = list(find_facts(passage(title, text)))
        assert {fact.name for fact in facts} == {name} and "Orsolya Venn" in {fact.answer for fact in facts}


@pytest.mark.parametrize(
    ("sentence", "spans"),
    [
        ("With --keep-going it skips damaged volumes and goes on.", {("option", "--keep-going")}),
        ("Give -v twice and it says more about files.", {("option", "-v")}),
        ("The setting idle_timeout closes silent connections.", {("identifier", "idle_timeout")}),
        (
            "Look into /etc/heron.conf and call close() yourself.",
            {("identifier", "/etc/heron.conf"), ("identifier", "close()")},
        ),
        ("A second call raises the error quill::Closed at once.", {("identifier", "quill::Closed")}),
        ("The port of the server defaults to 8080 everywhere.", {("default", "8080")}),
        ("Volumes are written in this format (default: zstd).", {("default", "zstd")}),
        ("The server drops silent clients after 90 seconds.", {("quantity", "90 seconds")}),
        ("The default is 90 seconds for every client.", {("quantity", "90 seconds")}),
        ("Every free account may store 1.5 GB here.", {("quantity", "1.5 GB")}),
        ("We moved the scanner there on 4 May 2019.", {("date", "4 May 2019")}),
        ("A team has at most 30 accounts here.", {("number", "30")}),
        ('The button is labelled "Save as copy" there.', {("quoted", "Save as copy")}),
        ("The scanner is a flat device.", {("description", "flat device")}),
        ("To end the test, press the green button.", {("phrase", "green button")}),
        ("plan: team; requests per hour: 5,000; storage: 50 GB", {("number", "5,000"), ("quantity", "50 GB")}),
        ("| team | 5,000 | 50 GB |", {("number", "5,000"), ("quantity", "50 GB")}),
        ("- Saving as GPX has moved to the File menu.", {("identifier", "GPX"), ("name", "File")}),
    ],
)
def test_what_can_be_an_answer_in_manuals_tables_and_change_logs(sentence, spans):
    found = [(fact.kind, fact.answer) for fact in find_facts(passage("", sentence))]
    assert len(found) == len(spans) and set(found) == spans


@pytest.mark.parametrize(
    "line",
    [
        "From: Jonna Halm <jonna@halm.example>",
        "To: everybody in the Ferrin office",
        "Date: Mon, 4 May 2020 10:11:12 +0200",
        "Subject: Re: the scanner on floor 3",
        "2019-05-04  Jonna Halm  <the.halm.office>",
        "See section 4.2 of the Heron manual.",
        "if (width == 40) { return Heron; }; {}",
        "This and that are the same.",
        "Only three words.",
        "Copyright 1998 by the people of Ferrin Office",  # notices
        "This manual is copyright of Jonna Halm since 1998.",
        "© 1998 the people of Ferrin Office and others",
        "Last changed: 4 May 2020 by somebody in Ferrin",
        "$ Last changed on Monday, 4 May 2020 $",
        "(accessed on 4 May 2020 by the editors)",
        "Thanks to Jonna Halm for the French words",
        "d.rast map=accum_5K bg=white",  # commands
        "heron-sync --keep-going --since 2019 /srv/old_pages",
        "Open idle_timeout with 5,000",  # half are plain words, but two alone
        "heron copies pages -v --since 2019 /srv/old_pages x_1",  # three are, and not half
        "F0 7F 08 0B ff 40 80 F7",  # rows of bytes
        "0000a0 ff 00 1C 40 DEF 80",
    ],
)
def test_lines_that_state_nothing_are_not_asked_about(line):
    assert list(find_facts(passage("", line))) == []
    assert list(find_facts(passage("", f"{line}\nThe setting idle_timeout closes silent connections.")))


def test_words_of_notices_inside_a_statement_do_not_make_it_a_notice():
    for line in (
        "The page was accessed on 4 May 2020.",
        "It was last changed on 4 May 2020.",
        "He said thanks to Ada Venn.",
    ):
        assert list(find_facts(passage("", line)))


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ("| F0 7F 08 | 5,000 | idle_timeout |", {"5,000", "idle_timeout"}),
        ("k1: F0; c2: 5,000; u3: 90 ms", {"5,000", "90 ms"}),
    ],
)
def test_rows_of_tables_need_no_plain_words(row, answers):
    assert {fact.answer for fact in find_facts(passage("", row))} >= answers
    assert list(find_facts(passage("", row.replace("|", "").replace(":", "").replace(";", "")))) == []


def test_a_digit_is_never_the_answer():
    for number, answers in (("3", set()), ("30", {"30"})):
        for line in (f"A team has at most {number} accounts here.", f"| team | {number} | some text |"):
            assert {fact.answer for fact in find_facts(passage("", line))} == answers
        assert {fact.answer for fact in find_facts(passage("", f"Its default is {number} everywhere here."))} == answers
    (fact,) = find_facts(passage("", "The server drops silent clients after 3 seconds."))
    assert fact.answer == "3 seconds"


def test_a_name_of_very_many_parts_before_a_slash_is_read_without_going_back():
    """Each way to divide it was tried before, twice as many for each part."""
    long = "_".join("part" for _ in range(200))
    assert [kind for kind, _, _ in find_spans(f"The folder {long}/ is empty")] == []
    ((kind, start, end),) = find_spans(f"The folder {long} is empty")
    assert (kind, start, end) == ("identifier", 11, 11 + len(long))


def test_a_date_may_be_answered_by_its_year_if_the_year_is_asked_for():
    fact = next(fact for fact in find_facts(passage("Orsolya Venn", PAGES["Orsolya Venn"])) if fact.kind == "date")
    assert fact.accept("In which year was Orsolya Venn born?") == ("1671", "4 May 1671")
    assert fact.accept("When was Orsolya Venn born?") == ("4 May 1671",)


def test_a_value_may_be_answered_without_its_unit_if_the_question_names_the_unit():
    (fact,) = find_facts(passage("", "The server drops silent clients after 90 seconds."))
    assert fact.accept("After how many seconds are silent clients dropped?") == ("90", "90 seconds")
    assert fact.accept("After how long are silent clients dropped?") == ("90 seconds",)
    assert fact.accept("In which second is a client dropped?") == ("90 seconds",)
    (share,) = find_facts(passage("", "The disk may be used up to 80% by it."))
    assert share.accept("How many % of the disk may it use?") == ("80%",)


def test_facts_are_drawn_from_different_sentences_and_repeat_for_a_seed():
    page = passage("Orsolya Venn", PAGES["Orsolya Venn"])
    drawn = draw_facts(page, Dice(3), 5)
    assert len({fact.sentence_start for fact in drawn}) == len(drawn) == 2
    assert drawn == draw_facts(page, Dice(3), 5)


# --------------------------------------------------------------------------------------------------------- page names


def test_pages_are_named_in_whole_words(pages_index):
    pages = Pages(pages_index)
    bridge = next(one for one in pages.passages if one.title == "Halm Bridge")
    assert list(pages.find_named(bridge)) == ["Orsolya Venn"]
    assert list(pages.find_named(passage("Essay", "Venn and Orsolya Vennings built Halm Bridges."))) == []
    assert list(pages.find_named(passage("Essay", "It was built by Orsolya Venn"))) == ["Orsolya Venn"]


def test_a_text_may_end_with_a_name_that_is_shorter_than_others():
    named = [passage(title, "") for title in ("Old Halm Bridge", "Halm Bridge", "Halm")]
    pages = Pages(SimpleNamespace(passages=lambda: named))
    for title in ("Old Halm Bridge", "Halm Bridge", "Halm"):
        essay = passage("Essay", f"The road leads to {title}")
        assert list(pages.find_named(essay)) == [title]


# ------------------------------------------------------------------------------------------------------------- drafts


def test_no_more_facts_are_drafted_than_were_asked_for(pages_index):
    passages = list(pages_index.passages())
    assert [len(draw_drafts(passages, num, seed=1)) for num in (0, 1, 2, 7)] == [0, 1, 2, 7]


def test_every_passage_is_asked_about_before_one_is_asked_about_again(pages_index):
    passages = list(pages_index.passages())
    facts = [draft.facts[0] for draft in draw_drafts(passages, 40, seed=1)]
    assert len({fact.passage.id for fact in facts[: len(PAGES)]}) == len(PAGES)
    assert len(facts) > len(PAGES) and len({(fact.passage.id, fact.sentence_start) for fact in facts}) == len(facts)
    assert draw_drafts(passages, 40, seed=1) != draw_drafts(passages, 40, seed=2)


def draw_folders(ids):
    """The folders of the drafts in their order; each document states one fact."""
    passages = [
        passage("", f"The setting idle_{place}x closes silent connections.", id) for place, id in enumerate(ids)
    ]
    drafts = draw_drafts(passages, len(passages), seed=1)
    assert {draft.facts[0].passage.doc_id for draft in drafts} == set(ids)
    return [draft.facts[0].passage.doc_id.rpartition("/")[0].partition("/")[0] for draft in drafts]


def test_folders_take_turns():
    """Also where one has nearly all documents; documents outside of any folder are one more."""
    many = [f"changes/{part}/{number}.txt" for part in "ab" for number in range(15)]
    drawn = draw_folders([*many, *(f"manual/{number}.md" for number in range(3)), "x.md", "y.md"])
    assert [sorted(drawn[first : first + 3]) for first in (0, 3)] == [["", "changes", "manual"]] * 2
    assert sorted(drawn[6:8]) == ["changes", "manual"] and set(drawn[8:]) == {"changes"}
    assert draw_drafts([], 5, seed=1) == []


def test_a_small_folder_is_asked_about_again_before_a_large_one_is_through():
    two = "Files are kept in silver_disk at night. Others are kept in iron_disk by day."
    pages = [passage("", two, id) for id in ("small/a.md", *(f"large/{number}.md" for number in range(9)))]
    drawn = [draft.facts[0].passage.doc_id for draft in draw_drafts(pages, 6, seed=1)]
    assert drawn.count("small/a.md") == 2
    large = [doc_id for doc_id in drawn if doc_id != "small/a.md"]
    assert len(set(large)) == len(large) == 4


@pytest.mark.parametrize(("num_folders", "take_turns"), [(50, True), (51, False)])
def test_very_many_folders_do_not_take_turns(num_folders, take_turns):
    large = [f"large/{number}.md" for number in range(200)]
    drawn = draw_folders([*large, *(f"f{number}/one.md" for number in range(num_folders - 1))])
    assert (set(drawn[:num_folders]) == set(drawn)) is take_turns
