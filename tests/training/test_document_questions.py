"""Questions out of a person's own documents: spans by rules, wording by a model, checks that only proven ones pass."""

import re
from collections import Counter
from types import SimpleNamespace

import pytest
from reading_endpoint import PAGES, WORDINGS, Failing, Reader, make_index, singles, write

from quaere.errors import BadInput, SamplingFailed
from quaere.records import Answer, Passage
from quaere.warmup.documents import writer
from quaere.warmup.documents.askable_facts import find_facts
from quaere.warmup.documents.checked_question import draw_drafts
from quaere.warmup.documents.checks import find_fault, names_subject, shares_words, word_overlap
from quaere.warmup.documents.prompts import OneLine


@pytest.fixture(scope="module")
def pages_index(tmp_path_factory):
    return make_index(tmp_path_factory.mktemp("pages"), PAGES.items())


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


@pytest.mark.parametrize(
    ("question", "answer", "names", "shares"),
    [
        ("Which Venn built Halm?", "Orsolya Venn", ["Halm"], True),
        ("In which county lies Halm Bridge?", "County of Halm", ["Halm Bridge", "county"], False),
        ("What was the price of it?", "House of Venn", [], False),  # a small word is no leak
        ("Which report shows where money went?", "cash flow report", [], False),  # the last word is what is asked for
        ("Which flow shows where money went?", "cash flow report", [], True),
        ("Which Report shows it?", "Cash Report", [], True),  # the last word of a name is a part of it
        ("Which report shows it?", "report", [], True),
        ("After how many seconds does it close?", "90 seconds", [], False),
    ],
)
def test_a_question_gives_its_answer_away_by_a_word_of_it(question, answer, names, shares):
    assert shares_words(question, answer, names) is shares


@pytest.mark.parametrize(
    ("question", "sentence", "share"),
    [
        ("Who built the Halm bridge?", "The bridge of Halm was built by Venn.", 1.0),
        ("Who built the Halm bridge?", "The bridge was made by Venn.", 1 / 3),
        ("How do I close idle connections?", "A silent connection is dropped.", 1 / 3),  # by the beginnings of words
        ("How do I stop it?", "Nothing ends here.", 0.0),
        ("Who is it?", "Nothing ends here.", 1.0),  # no word of content
    ],
)
def test_the_share_of_a_questions_words_that_stand_in_a_sentence(question, sentence, share):
    assert word_overlap(question, sentence) == pytest.approx(share)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("What is the name of the volume?", False),  # of any page
        ("What is the name of the Heron volume?", True),  # the title
        ("Which volume is used when restoring?", False),  # a heading: there is one of that name in many manuals
        ("Which volume does nightly use?", True),  # a folder
        ("Which volume does tarn use?", True),  # the file
        ("Which volume do herons use?", False),  # a word of the title, not the beginning of another
        ("Which volume keeps old_pages?", True),  # an identifier
        ("Which volume is used with --old?", True),  # an option
        ("Which volume has the old pages?", False),  # the sentence
        ("How is it kept with care?", False),  # the words by which one asks are in many titles
    ],
)
def test_a_question_names_the_page(question, names):
    text = "Old pages lie on silver_disk."
    passage = Passage("p", "nightly/tarn.md", "Using the Heron", text, 0, len(text), heading="How it is > Restoring")
    assert names_subject(question, passage, text) is names


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("Which volume has the old pages?", True),  # two words of three
        ("Which volume keeps old pages?", True),  # half
        ("Which volume keeps pages?", False),  # one of three
        ("Who is it after that?", True),  # no word of content: other rules refuse it
    ],
)
def test_a_question_about_a_page_without_a_title_says_what_the_sentence_says(question, says):
    text = "Old pages lie on silver_disk."
    assert names_subject(question, Passage("p", "d7", "", text, 0, len(text)), text) is says


async def test_a_question_that_could_be_asked_of_any_page_is_dropped(tmp_path):
    """Also where its passage is found and it is answered with it: the wording that names the page is kept."""
    vague, named = "Which name has the place for saved scans?", "Which name has the place for scans of Oss Office?"
    page = ("Oss Office", "The new scanner saves every page to inbox_share.")
    tables = {"answers": {vague: "inbox_share", named: "inbox_share"}}
    index = make_index(tmp_path / "one", [page])
    for wording, kept in ((vague, []), ({"everyday": vague, "plain": named}, [named])):
        reader = Reader(wordings={("", "inbox_share"): wording}, queries={vague: "new scanner saves"}, **tables)
        written = await write(index, reader)
        assert singles(written) == kept
        assert [item.reason for item in written.dropped] == ["single: does not name what it is about"] * (not kept)


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

BORN = {"Orsolya Venn": (1671, "Korrin Vale"), "Marta Oleen": (1690, "Korrin Vale"), "Ada Brandt": (1702, "Sall Haven")}


async def test_only_proven_questions_are_kept_and_facts_are_put_together(pages_index):
    kept, reasons = {}, Counter()
    unproven = {("Halm Bridge", "River Oss"), ("Orsolya Venn", "1740"), ("Marta Oleen", "painter")}
    for seed in range(12):  # which of a sentence's spans is asked for is drawn
        written = await write(pages_index, seed=seed)
        kept |= {question.question: question for question in written.questions}
        reasons += written.reasons
        drafted = [draft.facts[0] for draft in draw_drafts(list(pages_index.passages()), 40, seed)]
        facts = {(fact.passage.title, fact.answer) for fact in drafted} & set(WORDINGS)
        # Besides these it asks about further facts of pages that others name.
        assert {WORDINGS[fact] for fact in facts - unproven} <= set(singles(written))
        assert set(singles(written)) <= {WORDINGS[fact] for fact in set(WORDINGS) - unproven}
    assert {
        "single: is not one question",
        "single: gives its answer away",
        "single: not answered with the page",
        "single: answered without the page",
    } <= set(reasons)
    compared = [question for question in kept.values() if question.kind == "comparison"]
    assert compared
    for question in compared:
        names = sorted((name for name in BORN if name in question.question), key=lambda name: BORN[name][0])
        assert question.answers == ((names[0] if "earlier" in question.question else names[1]),)
    agreed = [question.answers for question in kept.values() if question.kind == "agreement"]
    assert set(agreed) == {("yes",), ("no",)}  # as many of each, or a template would tell the answer


async def test_the_same_seed_gives_the_same_questions(pages_index):
    first, again, other = [await write(pages_index, seed=seed) for seed in (5, 5, 6)]
    assert first == again and first.questions != other.questions


async def test_what_was_dropped_is_told_with_its_reason(pages_index):
    written = await write(pages_index, Reader(known={"Who painted the ceiling of Ferrin Hall?"}))
    record = next(item for item in written.dropped if item.question == "Who painted the ceiling of Ferrin Hall?")
    (fact,) = [fact for fact in find_all_facts(pages_index) if fact.id == record.id]
    assert (fact.passage.title, fact.answer) == ("Ferrin Hall", "Marta Oleen")
    assert (record.answer, record.reason) == ("Marta Oleen", "single: answered without the page")
    assert written.reasons == Counter(item.reason for item in written.dropped)
    assert len(written.dropped) + len(written.questions) == written.num_drafts


def find_all_facts(index):
    return [fact for passage in index.passages() for fact in find_facts(passage)]


async def test_settings_that_keep_nothing_are_refused(pages_index):
    with pytest.raises(BadInput, match="min_right"):
        await write(pages_index, tries=2, min_right=3)


async def test_documents_that_state_nothing_are_refused(tmp_path):
    index = make_index(tmp_path / "empty", [("Halm Bridge", "From: Jonna <jonna@halm.example>"), ("", "Too short.")])
    with pytest.raises(BadInput, match="states a fact"):
        await write(index)


# ---------------------------------------------------------------------------------------------------------- one fact

SCANNER = ("", "The new scanner on the top floor saves every page to inbox_share.")
WHERE = "Where does the new scanner on the top floor put its scans?"
BACKUP = ("", "When tarnctl restore meets damaged volumes, it goes on only if it has --keep-going.")
FILE = "safety/tarn.md"
HOW = "How do I carry forth my broken safety copies?"  # a word of the file's name, which is not searched; no other
TARN = {"wordings": {("", "--keep-going"): HOW}, "answers": {HOW: "--keep-going"}}


async def test_a_page_without_a_title_is_asked_about(tmp_path):
    reader = Reader(wordings={("", "inbox_share"): WHERE}, answers={WHERE: "inbox_share"})
    (question,) = (await write(make_index(tmp_path / "one", [SCANNER, BACKUP]), reader)).questions
    assert (question.question, question.answers, question.searches) == (WHERE, ("inbox_share",), 1)
    assert question.evidence[0].text == SCANNER[1]
    assert question.scores == {
        "with_page": 1.0,
        "closed_book": 0.0,
        "same_words": round(word_overlap(WHERE, SCANNER[1]), 3),
    }
    (prompt, *_) = [asked for part, asked in reader.asked if part == "You write questions" and "inbox_share" in asked]
    assert " Name " not in prompt


@pytest.mark.parametrize(
    ("queries", "found"),
    [
        (["tarnctl damaged volumes"] * 3, True),
        (["broken copies", "safety", "tarnctl damaged volumes"], True),  # one of three is enough
        (["broken copies", "safety", ""], False),
        (["broken copies", "safety", "copies", "tarnctl damaged volumes"], False),  # there is no fourth
    ],
)
async def test_a_question_whose_words_do_not_find_its_passage_may_be_searched_for_in_others(tmp_path, queries, found):
    class Searching(Reader):
        def query(self, question):
            assert question == HOW
            return self.queries.pop(0)

    reader = Searching(queries=list(queries), **TARN)
    written = await write(make_index(tmp_path / "one", [BACKUP], [FILE]), reader)
    assert singles(written) == [HOW] * found
    assert [item.reason for item in written.dropped] == ["single: its passage is not found"] * (not found)
    assert reader.count("You search documents") == 3


async def test_a_question_that_finds_its_passage_is_not_searched_for_in_other_words(pages_index):
    reader = Reader(known=())
    assert singles(await write(pages_index, reader)) and not reader.count("You search documents")


async def test_a_passage_must_be_among_the_first(tmp_path):
    """The more often it says so, the higher a page is ranked; the one that is asked about says it once."""
    loud = [("", f"The scanner, the scanner, the top floor, the top floor, number {number}.") for number in (11, 12)]
    index = make_index(tmp_path / "ranked", [SCANNER, *loud])
    asked = "Which place has the top floor scanner?"
    tables = {"wordings": {("", "inbox_share"): asked}, "answers": {asked: "inbox_share"}}
    assert [hit.passage.text for hit in index.search([asked], 10)[0]].index(SCANNER[1]) == 2
    for settings, kept in (({}, []), ({"max_rank": 2}, []), ({"max_rank": 3}, [asked])):
        written = await write(index, Reader(**tables), **{"topk": 10} | settings)
        assert singles(written) == kept
        assert ("single: its passage is not found" in written.reasons) is not bool(kept)
    assert singles(await write(index, Reader(**tables), topk=2, max_rank=3)) == []  # a search does not show it
    for query, kept in (("top floor scanner", []), ("pages saved to inbox_share", [asked])):
        assert singles(await write(index, Reader(queries={asked: query}, **tables), topk=10)) == kept


class Distracted(Reader):
    """Takes the option of another program if it sees one."""

    def answer(self, shown, question):
        return "--force" if "--force" in shown else super().answer(shown, question)


PACKED = ("", "When packctl meets damaged volumes, it goes on only if it has --force.")


async def test_a_question_must_be_answered_with_other_passages_beside_its_own(tmp_path):
    asked = "How does it go on when tarnctl restore meets damaged volumes?"
    tables = {"wordings": {("", "--keep-going"): asked}, "answers": {asked: "--keep-going"}}
    index = make_index(tmp_path / "two", [BACKUP, PACKED])
    alone = await write(index, Distracted(**tables), topk=1)
    beside = await write(index, Distracted(**tables), topk=2)
    steady = await write(index, Reader(**tables), topk=2)
    assert singles(alone) == singles(steady) == [asked] and singles(beside) == []
    assert "single: not answered with the page" in beside.reasons


async def test_what_the_models_own_query_found_is_shown_beside_the_passage(tmp_path):
    tables = TARN | {"queries": {HOW: "tarnctl restore damaged volumes"}}
    index = make_index(tmp_path / "two", [BACKUP, PACKED], [FILE])
    for topk, kept in ((1, [HOW]), (2, [])):
        assert singles(await write(index, Distracted(**tables), topk=topk)) == kept
    assert singles(await write(index, Reader(**tables), topk=2)) == [HOW]


async def test_three_others_are_shown_at_most(tmp_path):
    class Watching(Reader):
        shown = ()

        def answer(self, shown, question):
            if shown:
                self.shown = shown.strip().split("\n\n")
            return super().answer(shown, question)

    others = [("", f"The old scanner on floor {number} saves every page to basement.") for number in range(20, 27)]
    reader = Watching(wordings={("", "inbox_share"): WHERE}, answers={WHERE: "inbox_share"})
    (asked,) = singles(await write(make_index(tmp_path / "many", [SCANNER, *others]), reader, topk=10))
    assert asked == WHERE and len(reader.shown) == 4 and SCANNER[1] in reader.shown


async def test_what_the_model_knows_once_of_five_times_is_dropped(tmp_path):
    class Guessing(Reader):
        """Knows it by heart at its last attempt only."""

        from_memory = 0

        def answer(self, shown, question):
            self.from_memory += not shown
            return self.answers[question] if shown or self.from_memory == self.lucky else "no idea"

    index = make_index(tmp_path / "one", [SCANNER])
    tables = {"wordings": {("", "inbox_share"): WHERE}, "answers": {WHERE: "inbox_share"}}
    for lucky in (1, 5):
        written = await write(index, Guessing(lucky=lucky, **tables))
        assert [item.reason for item in written.dropped] == ["single: answered without the page"]
    assert singles(await write(index, Guessing(lucky=6, **tables))) == [WHERE]


@pytest.mark.parametrize(
    ("pattern", "share", "num_read"),
    [
        ("RRRWW", 1.0, 3),
        ("RWRRW", 0.75, 4),
        ("RWWRR", 0.6, 5),
        ("RWWWR", None, 4),  # three cannot be reached any more
        ("WRRRR", None, 1),  # the first is greedy
    ],
)
async def test_three_of_five_answers_must_be_right_and_the_greedy_one(tmp_path, pattern, share, num_read):
    """The documented thresholds: `--min-right` (3) of `--tries` (5). No more are sampled than are needed to know."""

    class Wavering(Reader):
        num_read = 0

        def answer(self, shown, question):
            if not shown:
                return "no idea"
            self.num_read += 1
            return self.answers[question] if pattern[self.num_read - 1] == "R" else "elsewhere"

    reader = Wavering(wordings={("", "inbox_share"): WHERE}, answers={WHERE: "inbox_share"})
    written = await write(make_index(tmp_path / "one", [SCANNER]), reader)
    assert reader.num_read == num_read
    assert [question.scores["with_page"] for question in written.questions] == ([share] if share else [])


PLAIN = "Which share does the new scanner save every page to?"


@pytest.mark.parametrize(
    ("everyday", "kept"),
    [
        (WHERE, WHERE),  # the first that passes
        ("Where does it go according to the text?", PLAIN),  # breaks a rule
        ("Under what address do I look for my own things?", PLAIN),  # finds nothing
        ("Who saves the page of the new scanner?", PLAIN),  # is not answered as it should be
    ],
)
async def test_a_fact_is_worded_three_times_and_the_first_wording_that_passes_is_kept(tmp_path, everyday, kept):
    reader = Reader(
        wordings={("", "inbox_share"): {"everyday": everyday, "plain": PLAIN}},
        answers={WHERE: "inbox_share", PLAIN: "inbox_share"},
    )
    written = await write(make_index(tmp_path / "one", [SCANNER]), reader)
    assert singles(written) == [kept] and not written.dropped
    assert reader.count("You write questions") == 3


@pytest.mark.parametrize(("unclear", "kept"), [((), WHERE), ((WHERE,), PLAIN), ((WHERE, PLAIN), "")])
async def test_a_wording_that_the_model_calls_unclear_is_not_attempted(tmp_path, unclear, kept):
    reader = Reader(
        wordings={("", "inbox_share"): {"everyday": WHERE, "plain": PLAIN}},
        answers={WHERE: "inbox_share", PLAIN: "inbox_share"},
        unclear=unclear,
    )
    written = await write(make_index(tmp_path / "one", [SCANNER]), reader)
    assert singles(written) == ([kept] if kept else [])
    assert [item.reason for item in written.dropped] == ([] if kept else ["single: is unclear"])
    attempted = {asked.rpartition("Question: ")[2] for part, asked in reader.asked if part == "You answer questions"}
    assert attempted.isdisjoint(unclear)


async def test_the_program_whose_folder_it_is_is_to_be_named(tmp_path):
    page, named = ("Scanner", "The scanner of Heron saves every page to inbox_share."), "Where do scans of Heron go?"
    reader = Reader(wordings={("Heron", "inbox_share"): named}, answers={named: "inbox_share"})
    written = await write(make_index(tmp_path / "one", [page], ids=["manuals/heron/scan.html"]), reader)
    assert singles(written) == [named]
    asked = next(asked for part, asked in reader.asked if part == "You write questions")
    assert asked.startswith("File: manuals/heron/scan.html\nScanner\n") and 'Name "Heron".' in asked


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Where do scans go?", "In Heron, where do scans go?"),
        ("Scans go to which share?", "In Heron, Scans go to which share?"),  # no question word: it may be a name
        ("Where do scans of Heron go?", "Where do scans of Heron go?"),
        ("Where does scan_now save pages?", "Where does scan_now save pages?"),
    ],
)
async def test_a_question_that_names_nothing_begins_with_the_program(tmp_path, said, expected):
    page = ("Scanner", "The scanner of Heron saves every page to inbox_share.")
    reader = Reader(wordings={("Heron", "inbox_share"): said}, answers={expected: "inbox_share"})
    written = await write(make_index(tmp_path / "one", [page], ids=["manuals/heron/scan.html"]), reader)
    assert singles(written) == [expected]


async def test_a_program_that_is_in_the_answer_is_not_to_be_named(tmp_path):
    """A question with its name would give the answer away."""
    page, asked = ("Scanner", "The scanner is started by Heron Start at night."), "What starts the scanner?"
    reader = Reader(wordings={("", "Heron Start"): asked}, answers={asked: "Heron Start"})
    written = await write(make_index(tmp_path / "one", [page], ids=["heron/scan.html"]), reader)
    assert singles(written) == [asked]


async def test_a_model_that_fails_for_a_moment_is_asked_again(pages_index):
    """What it would have written is written: nothing is dropped for it."""
    whole = await write(pages_index)
    assert await write(pages_index, Failing(20)) == whole


@pytest.mark.parametrize("drafts", [1, 40])
async def test_a_model_that_goes_on_failing_is_an_error(pages_index, drafts):
    """Also for a single draft: that no line came is no fault of its question."""
    with pytest.raises(SamplingFailed, match="out of memory") as told:
        await write(pages_index, Failing(10**6), drafts=drafts)
    assert "same command again" in told.value.hint


async def test_a_single_prompt_that_always_fails_costs_its_question_alone(pages_index):
    whole, lame = await write(pages_index), await write(pages_index, Failing(10**6, only='the answer is "Sall Haven"'))
    assert "Where was Ada Brandt born?" in singles(whole)
    assert set(singles(lame)) == set(singles(whole)) - {"Where was Ada Brandt born?"}


async def test_the_same_question_is_kept_once(tmp_path):
    index = make_index(tmp_path / "twice", [SCANNER, ("", f"{SCANNER[1]} Nobody knows why.")])
    written = await write(index, Reader(wordings={("", "inbox_share"): WHERE}, answers={WHERE: "inbox_share"}))
    assert singles(written) == [WHERE] and [item.reason for item in written.dropped] == ["single: was asked already"]


# -------------------------------------------------------------------------------------------------------- many facts


def mill(number):
    """A mill with its builder and its buyer, who have no word in common with anybody else's."""
    letters = "abcdefghij"
    tail = f"{letters[number // 10]}{letters[number % 10]}"
    return f"Mill{tail} House", f"Bo{tail} Bilt{tail}", f"Bu{tail} Baut{tail}"


@pytest.fixture(scope="module")
def mills(tmp_path_factory):
    """70 mills with two facts each, and the tables by which all of them can be asked about."""
    rows = [mill(number) for number in range(70)]
    text = "{0} was built by {1} for the village. In the end it was bought by {2} at a fair."
    pages = [(name, text.format(name, builder, buyer)) for name, builder, buyer in rows]
    wordings = {(name, builder): f"Who built {name}?" for name, builder, _ in rows}
    wordings |= {(name, buyer): f"Who bought {name} in the end?" for name, _, buyer in rows}
    answers = {question: answer for (_, answer), question in wordings.items()}
    index = make_index(tmp_path_factory.mktemp("mills"), pages)
    return SimpleNamespace(index=index, tables={"wordings": wordings, "answers": answers, "known": ()})


async def test_where_the_first_facts_give_no_question_no_more_are_asked_about(mills):
    reader = Reader(wordings={})
    written = await write(mills.index, reader, drafts=140)
    assert written.questions == [] and written.num_drafts == len(written.dropped) == 50
    assert reader.count("You write questions") == 3 * 50


async def test_one_question_of_the_first_facts_is_enough_to_go_on(mills):
    drafts = draw_drafts(list(mills.index.passages()), 140, 0)
    assert len(drafts) == 140
    fact = drafts[49].facts[0]
    key = (fact.name, fact.answer)
    reader = Reader(**mills.tables | {"wordings": {key: mills.tables["wordings"][key]}})
    written = await write(mills.index, reader, drafts=140)
    assert singles(written) == [mills.tables["wordings"][key]] and written.num_drafts == 140


@pytest.mark.parametrize(("seconds", "minutes", "num"), [(119, 2, 140), (121, 2, 50), (10**9, 0, 140)])
async def test_after_so_many_minutes_no_more_facts_are_drafted(mills, monkeypatch, seconds, minutes, num):
    clock = iter([0])
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: next(clock, seconds)))
    written = await write(mills.index, Reader(**mills.tables), drafts=140, minutes=minutes)
    assert len(singles(written)) == num
    assert {"choice", "yes-no"} <= {question.kind for question in written.questions}  # what was kept is put together


def by_kind(written, kind):
    return [question for question in written.questions if question.kind == kind]


async def test_choices_and_yes_no_questions_are_balanced(mills):
    written = await write(mills.index, Reader(**mills.tables), drafts=140)
    choices, confirmed = by_kind(written, "choice"), by_kind(written, "yes-no")
    assert len(choices) == len(confirmed) == 14  # a tenth of the facts
    places = []
    for question in choices:
        asked, one, other = re.fullmatch(r"(.*), (.*) or (.*)\?", question.question).groups()
        (right,) = question.answers
        assert mills.tables["answers"][f"{asked}?"] == right and one != other
        assert {one, other} <= {answer for answer in mills.tables["answers"].values() if answer[2:4] == right[2:4]}
        places.append((one, other).index(right))
    assert Counter(places) == {0: 7, 1: 7}
    assert Counter(question.answers for question in confirmed) == {("yes",): 7, ("no",): 7}
    for question in confirmed:
        proposed, asked = re.fullmatch(r"Is (.*) the answer to (.*)", question.question).groups()
        assert (mills.tables["answers"][asked] == proposed) == (question.answers == ("yes",))
    assert all(question.facts == question.searches == 1 for question in (*choices, *confirmed))
    assert len({question.id for question in written.questions}) == len(written.questions)


class AlwaysYes(Reader):
    def confirm(self, shown, proposed, question):
        return "yes"


class AlwaysNo(Reader):
    def confirm(self, shown, proposed, question):
        return "no"


class TakesTheFirst(Reader):
    def choose(self, shown, question, one, other):
        return one


class TakesTheSecond(Reader):
    def choose(self, shown, question, one, other):
        return other


class KnowsByHeart(Reader):
    def confirm(self, shown, proposed, question):
        return "yes" if self.answers[question] == proposed else "no"

    def choose(self, shown, question, one, other):
        return self.answers[question]


@pytest.mark.parametrize(
    ("kind", "reason", "readers"),
    [
        ("yes-no", "not answered with the page", (AlwaysYes, AlwaysNo)),
        ("choice", "not answered with the page", (TakesTheFirst, TakesTheSecond)),
        ("yes-no", "answered without the page", (KnowsByHeart,)),
        ("choice", "answered without the page", (KnowsByHeart,)),
    ],
)
async def test_a_choice_is_not_kept_for_a_model_that_did_not_have_to_read(mills, kind, reason, readers):
    for reader in readers:
        written = await write(mills.index, reader(**mills.tables), drafts=64)
        assert len(singles(written)) == 64 and by_kind(written, kind) == []
        assert written.reasons[f"{kind}: {reason}"] >= 6


async def test_a_model_that_says_yes_to_everything_by_heart_may_still_read(mills):
    class Sanguine(Reader):
        """Without the page it says yes, or takes the first: right for one of both variants, by chance."""

        def confirm(self, shown, proposed, question):
            return super().confirm(shown, proposed, question) if shown else "yes"

        def choose(self, shown, question, one, other):
            return super().choose(shown, question, one, other) if shown else one

    written = await write(mills.index, Sanguine(**mills.tables), drafts=64)
    assert len(by_kind(written, "choice")) == len(by_kind(written, "yes-no")) == 6


def test_facts_that_seldom_give_a_question_are_mostly_asked_about_last():
    """An answer of one plain word, a phrase: weights by how many of their questions were kept."""
    texts = {f"a{n}": "Then you press Move on the panel and go on." for n in range(60)}
    texts |= {f"b{n}": f"Then you give --fast{n} and go on." for n in range(60)}
    passages = [Passage(f"{name}#0", name, "", text, 0, len(text)) for name, text in texts.items()]
    for seed in range(3):
        facts = [draft.facts[0] for draft in draw_drafts(passages, 1000, seed)]
        assert {fact.weight for fact in facts if fact.kind == "option"} == {1.0}
        assert {fact.answer: fact.weight for fact in facts if fact.kind == "name"} == {"Move": 0.3}
        assert len(facts) == 120  # none is lost
        is_move = [fact.answer == "Move" for fact in facts]
        num_last = is_move[::-1].index(False)
        assert 30 <= num_last < 60  # three in ten are drawn with the others
