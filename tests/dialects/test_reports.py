"""The report protocol: what is shown under which number, and what a citation therefore means."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from properties import examples
from quaere.chat.dimensions import POOL
from quaere.chat.protocol import Acted, Quoted
from quaere.chat.statements import find_citations, split_statements
from quaere.dialects.report.report_writer import MAX_REPORT_CHARS, ReportWriter, bind_report, numbered_sources
from quaere.records import (
    Answer,
    Dimension,
    Failure,
    Malformed,
    Question,
    ReportTask,
    Rubric,
    Search,
    SearchResult,
    SolveTask,
    Weight,
)
from reporting import HOSTILE, ROOMY, NamedSearcher, answer, search, write

TEXTS = {name: f"About {name}, there is much to say." for name in "abcdefgh"}
REPORT = "A is so [1]. B and C differ [2, 3]. Nobody knows D [9].\n\nConclusion: A it is [1]."


# ---------------------------------------------------------------------------------------------------------- protocol


def test_a_turn_is_one_search_or_the_report():
    read = ReportWriter().read
    assert read("<think><answer>no</answer></think><search> the Oss </search>") == Search(("the Oss",))
    assert read("<answer>\nIt is [1].\n</answer>") == Answer("It is [1].")
    assert read("<search>a</search><answer>b</answer>") == Search(("a",))
    for text, words in [
        ("", "neither a search nor a report"),
        ("<answer>It", "not closed with </answer>"),
        ("<search>It", "not closed with </search>"),
        ("<answer> </answer>", "empty"),
        ("<search> </search>", "empty"),
        ("<answer>[1]</answer>", "states nothing"),
        ("<answer>- [1], [2]. ...</answer>", "states nothing"),
        (f"<answer>{'a' * (MAX_REPORT_CHARS + 1)}</answer>", f"at most {MAX_REPORT_CHARS}"),
        ("<answer>\ud800</answer>", "half a character"),
    ]:
        action = read(text)
        assert isinstance(action, Malformed) and words in action.reason
    assert isinstance(read(f"<answer>{'a' * MAX_REPORT_CHARS}</answer>"), Answer)


def test_what_goes_wrong_is_said_without_a_placeholder():
    writer = ReportWriter()
    lost = writer.reply(Acted(Search(("a",)), (), Failure("search", "timeout", "late")))
    spent = writer.reply(Acted(Search(("a",)), (), Failure("limit", "searches", "at most 1")))
    wrong = writer.reply(Acted(Malformed("the report is empty")))
    assert "could not be carried out" in lost.text and "No searches are left" in spent.text
    assert "the report is empty" in wrong.text and "between <answer> and </answer>" in wrong.text
    assert writer.reply(Acted(Search(("a",)), (SearchResult("a", ()),))).text == (
        "<observation>\nNo passage was found.\n</observation>"
    )


def test_the_writer_is_told_by_what_it_is_judged():
    pool = (*POOL, Dimension("wit", "It is <|im_end|> funny."))
    rubric = Rubric("factuality", (Weight("wit", 0.4), Weight("unknown", 0.25)))
    task = ReportTask(Question("q", "Why?"), rubric)
    full = ReportWriter(pool=pool).opening(task)[-1]
    meaning = next(dimension.text for dimension in POOL if dimension.name == "factuality")
    assert f"- factuality (above all): {meaning}\n- wit (weight 0.4): It is <|im_end|> funny." in full.text
    assert full.text.endswith("- unknown (weight 0.25)")
    assert {Quoted("Why?"), Quoted("wit"), Quoted("It is <|im_end|> funny.")} <= set(full.parts)
    brief = ReportWriter(style="brief").opening(task)
    assert brief[-1].text == "Question:\nWhy?\n\nJudged by factuality, wit 0.4, unknown 0.25."
    assert len(brief[0].text) < 100 < len(ReportWriter().opening(task)[0].text)
    assert "udged" not in ReportWriter().opening(ReportTask(Question("q", "Why?")))[-1].text
    with pytest.raises(TypeError, match="SolveTask"):
        ReportWriter().opening(SolveTask(Question("q", "Why?")))


def test_a_guided_writer_is_opened_for():
    guided = ReportWriter(guided=True)
    opened = [guided.prefix(0, False), guided.prefix(1, False), guided.prefix(2, True)]
    assert opened == ["<search>", "<search>", "<answer>[1]"]
    assert "\n" in guided.stop and "\n" not in ReportWriter().stop
    assert guided.read("<search>the Oss\n") == Search(("the Oss",))
    assert guided.read("<answer>[1] says so. [2") == Answer("[1] says so. [2")
    assert isinstance(guided.read("so\n"), Malformed) and isinstance(guided.read("<answer>\n"), Malformed)
    assert ReportWriter().prefix(0, True) == ""
    examples = [message for message in guided.opening(ReportTask(Question("q", "Why?"))) if message.role == "assistant"]
    actions = [guided.read(message.text) for message in examples]
    assert [type(action) for action in actions] == [Search, Answer] * 2
    for action in actions[1::2]:
        assert all(statement.citations for statement in split_statements(action.text))


async def test_a_guided_report_that_is_cut_off_has_its_whole_sentences():
    turns = [" a\n", " A is so [1]. B is not [1], and much more could be said of it, and more"]
    guided = {"writer": ReportWriter(guided=True), "limits": structs.replace(ROOMY, max_turns=2)}
    whole = await write(turns, NamedSearcher(TEXTS), **guided)
    assert whole.end == "answered" and bind_report(whole).text == f"[1]{turns[1]}"
    short = structs.replace(guided["limits"], turn_tokens=whole.turns[1].num_tokens - 3)
    cut = await write(turns, NamedSearcher(TEXTS), writer=guided["writer"], limits=short)
    assert (cut.end, cut.turns[1].stop_reason, cut.turns[1].failure) == ("answered", "length", None)
    assert bind_report(cut).text == "[1] A is so [1]." and bind_report(cut).citations == (1, 1)
    assert isinstance(cut.turns[0].action, Search)  # a query that is cut off is one all the same


async def test_a_guided_report_without_a_whole_sentence_is_none():
    turns = [" a\n", " A is so [1] and much more could be said of it, and more"]
    limits = structs.replace(ROOMY, max_turns=2, turn_tokens=12)
    cut = await write(turns, NamedSearcher(TEXTS), writer=ReportWriter(guided=True), limits=limits)
    assert (cut.end, cut.turns[1].stop_reason, bind_report(cut)) == ("turn_limit", "length", None)


def test_a_report_that_closes_at_its_last_token_is_whole():
    said = Answer("It is so and so it")
    assert ReportWriter().read_cut(said) == said


# --------------------------------------------------------------------------------------------------------- numbering


async def test_numbers_go_on_and_a_passage_keeps_its_own():
    episode = await write([search("a b"), search("b c a d"), answer(REPORT)], NamedSearcher(TEXTS))
    assert "[1]\nOn a\n" in episode.turns[0].reply and "[2]\nOn b\n" in episode.turns[0].reply
    assert "[2]\nOn b\n" in episode.turns[1].reply and "[3]\nOn c\n" in episode.turns[1].reply
    sources = numbered_sources(episode.turns)
    assert {number: source.passage.doc_id for number, source in sources.items()} == {1: "a", 2: "b", 3: "c"}
    assert all(source.number == number for number, source in sources.items())
    report = bind_report(episode)
    assert report.text == REPORT and report.conclusion == "A it is [1]."
    assert report.citations == (1, 2, 3, 9, 1) and report.unresolved == (9,)
    assert [source.passage.doc_id for source in report.sources] == ["a", "b", "c"]
    assert report.resolved_share == pytest.approx(0.8)
    assert report.repeated_share == 0


async def test_texts_that_share_an_id_have_numbers_of_their_own():
    careless = NamedSearcher(TEXTS)
    careless.passages = {name: structs.replace(one, id="7") for name, one in careless.passages.items()}
    episode = await write([search("a b"), search("b c"), answer("So [1, 2, 3].")], careless)
    assert "[2]\nOn b\n" in episode.turns[1].reply and "[3]\nOn c\n" in episode.turns[1].reply
    report = bind_report(episode)
    assert [(source.number, source.passage.doc_id) for source in report.sources] == [(1, "a"), (2, "b"), (3, "c")]


async def test_what_a_limit_cut_off_cannot_be_cited():
    limits = structs.replace(_roomy(), tool_response_tokens=60)
    long = {**TEXTS, "a": "About a. " * 8}
    episode = await write([search("a b c"), search("d"), answer("So [1, 2, 3].")], NamedSearcher(long), limits=limits)
    (cut,) = episode.turns[0].results[0].hits
    assert cut.passage.doc_id == "a" and 0 < len(cut.passage.text) < len(long["a"])
    report = bind_report(episode)
    assert [(source.number, source.passage.doc_id) for source in report.sources] == [(1, "a"), (2, "d")]
    assert report.unresolved == (3,)
    assert report.sources[0].passage == cut.passage


async def test_a_passage_seen_cut_and_then_whole_is_whole():
    limits = structs.replace(_roomy(), tool_response_tokens=90)
    long = {**TEXTS, "b": "About b. " * 8}
    episode = await write([search("a b"), search("b"), answer("So [2].")], NamedSearcher(long), limits=limits)
    first, second = (turn.results[0].hits[-1].passage for turn in episode.turns[:2])
    assert len(first.text) < len(second.text)
    (source,) = bind_report(episode).sources
    assert source.number == 2 and source.passage == second


async def test_a_reply_that_no_longer_fits_has_shown_nothing():
    episode = await write([search("a b")], NamedSearcher(TEXTS), limits=structs.replace(_roomy(), sequence_tokens=1500))
    short = await write(
        [search("a b")],
        NamedSearcher({name: text * 60 for name, text in TEXTS.items()}),
        limits=structs.replace(_roomy(), sequence_tokens=1500, answer_turn=False),
    )
    assert numbered_sources(episode.turns) and short.end == "sequence_limit" and not numbered_sources(short.turns)
    assert bind_report(short) is None


async def test_only_a_report_can_be_bound():
    episode = await write([search("a"), answer("So.")], NamedSearcher(TEXTS))
    with pytest.raises(TypeError, match="SolveTask"):
        bind_report(structs.replace(episode, task=SolveTask(Question("q", "Why?"))))
    unfinished = await write(
        [search("a"), "hm", RuntimeError()][:2], NamedSearcher(TEXTS), limits=structs.replace(_roomy(), max_turns=2)
    )
    assert bind_report(unfinished) is None


def _roomy():
    from reporting import ROOMY

    return ROOMY


QUERIES = st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True), max_size=4)
REPORTS = st.lists(
    st.sampled_from(
        ["Oss", " is", ". ", "\n\n", "[1]", "[2, 3]", " [4][9]", "[77777777777]", "# T\n", "- ", "Conclusion: "]
    ),
    min_size=1,
    max_size=15,
).map(lambda parts: "So " + "".join(parts))


@settings(max_examples=examples(60))
@given(queries=QUERIES, text=REPORTS, max_tokens=st.integers(20, 400))
async def test_binding_never_invents(queries, text, max_tokens):
    turns = [search(" ".join(names)) for names in queries]
    limits = structs.replace(_roomy(), tool_response_tokens=max_tokens, topk=4)
    episode = await write([*turns, answer(text)], NamedSearcher(TEXTS), limits=limits)
    report = bind_report(episode)
    shown = {hit.passage.id for turn in episode.turns for result in turn.results for hit in result.hits}
    replies = "".join(turn.reply for turn in episode.turns)
    assert {source.passage.id for source in report.sources} <= shown
    for source in report.sources:  # what bears a number was seen under that number
        assert f"[{source.number}]\n{source.passage.titled_text}" in replies
    assert len(numbered_sources(episode.turns)) == len(shown)
    assert {source.number for source in report.sources} == set(report.citations) & set(range(1, len(shown) + 1))
    assert set(report.unresolved).isdisjoint(source.number for source in report.sources)
    assert list(report.citations) == [number for cite in find_citations(report.text) for number in cite.numbers]
    assert report.statements == split_statements(report.text)


# --------------------------------------------------------------------------------------------------------- injection


@settings(max_examples=examples(40))
@given(st.lists(st.sampled_from(HOSTILE), min_size=8, max_size=8), st.randoms(use_true_random=False))
async def test_documents_change_no_citation_no_statement_and_no_binding(hostile, chance: random.Random):
    turns = [search("a b c"), search("c d"), search("e a"), answer(REPORT + " More [4][5], and [6].")]
    harmless = await write(turns, NamedSearcher(TEXTS))
    poisoned = {
        name: text if chance.random() < 0.2 else text * 2 for name, text in zip("abcdefgh", hostile, strict=True)
    }
    attacked = await write(turns, NamedSearcher(poisoned))
    assert [turn.action for turn in attacked.turns] == [turn.action for turn in harmless.turns]
    assert attacked.outcome == harmless.outcome and attacked.end == harmless.end
    one, two = bind_report(harmless), bind_report(attacked)
    assert (one.text, one.statements, one.conclusion) == (two.text, two.statements, two.conclusion)
    assert (one.citations, one.unresolved) == (two.citations, two.unresolved) == ((1, 2, 3, 9, 1, 4, 5, 6), (9, 6))
    bound = [[(source.number, source.passage.id) for source in report.sources] for report in (one, two)]
    assert bound[0] == bound[1] == [(1, "a#0"), (2, "b#0"), (3, "c#0"), (4, "d#0"), (5, "e#0")]


# ---------------------------------------------------------------------------------------------------- a strong writer


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    from quaere.search.index_build import build_index
    from quaere.worlds import generate_world, write_world

    root = tmp_path_factory.mktemp("world")
    write_world(generate_world(3, 200, "evaluation"), root / "world", 40)
    build_index(root / "world" / "corpus.jsonl", root / "index")
    return root


async def test_a_strong_writers_citations_are_all_valid(world):
    from quaere.rollout.question_files import read_questions
    from quaere.search.searcher import open_searcher

    searcher = open_searcher(str(world / "index"))
    questions = [q for q in read_questions(world / "world" / "questions.jsonl") if q.hops > 1][:8]
    num_citations = 0
    for question in questions:
        turns, sentences, numbers = [], [], {}
        for evidence in question.evidence:  # it knows what to look for, and counts passages for itself
            turns.append(search(evidence.text.replace("<", " ")))
            for hit in (await searcher.search([evidence.text], 3))[0]:
                numbers.setdefault(hit.passage.id, len(numbers) + 1)
                if hit.passage.doc_id == evidence.doc_id and evidence.text in hit.passage.text:
                    sentences.append((evidence.text.rstrip("."), numbers[hit.passage.id], evidence))
        text = "".join(f"{words} [{number}]. " for words, number, _ in sentences)
        episode = await write(
            [*turns, answer(f"{text}\n\nConclusion: {question.answers[0]} [1].")], searcher, task=ReportTask(question)
        )
        report = bind_report(episode)
        by_number = {source.number: source.passage for source in report.sources}
        assert sentences and report.resolved_share == 1 and not report.unresolved
        for _, number, evidence in sentences:
            assert evidence.text in by_number[number].text and by_number[number].doc_id == evidence.doc_id
        num_citations += len(report.citations)
    await searcher.close()
    assert num_citations >= 3 * len(questions)
