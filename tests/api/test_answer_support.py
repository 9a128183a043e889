"""The sentence printed beside an answer: found in prose, and in the markup and code of documentation."""

import pytest
from msgspec import structs

from evaluated import NEVER_MET, NO_ROOM, answer, episode, passage, search
from quaere.api.answer import (
    describe_found,
    find_support,
    is_about_question,
    is_found,
    key_words,
    passage_number,
    question_overlap,
    read_answer,
    refuse_all_failed,
    refuse_unanswered,
    say_unproven,
    summarise_answers,
)
from quaere.errors import NotFound, SamplingFailed, SearchFailed
from quaere.records import Failure, Question


def supported(said, *texts):
    found = find_support(
        episode(search(*(passage(text, f"d{number}") for number, text in enumerate(texts))), answer(said))
    )
    return found and (found[0].doc_id, found[0].text)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("secure_filename", "Always call :func:`~werkzeug.utils.secure_filename` on it."),
        ("1000", "Middleware(GZipMiddleware, minimum_size=1000)"),
        ("FLASK_SECRET_KEY", '$ export FLASK_SECRET_KEY="5f35"'),
        ("Port  5000", "It listens on host:port 5000/tcp."),
    ],
)
def test_an_answer_inside_markup_or_code_is_found(said, sentence):
    assert supported(said, f"It is a page. {sentence}") == ("d0", sentence)


def test_a_word_of_prose_is_preferred_to_a_word_inside_code():
    assert supported("1000", "Call it with minimum_size=1000", "The default is 1000.") == ("d1", "The default is 1000.")


@pytest.mark.parametrize(("said", "sentence"), [("9", "It needs 3.9.1 here."), ("filename", "Use secure_filename(x).")])
def test_a_part_of_a_number_or_a_name_is_no_support(said, sentence):
    assert supported(said, sentence) is None


def test_yes_and_no_and_nothing_stand_in_no_sentence():
    found = {said: supported(said, "Yes, the answer is no.") for said in ("yes", "No.", "the", "", "answer")}
    assert [said for said, sentence in found.items() if sentence] == ["answer"]


@pytest.mark.parametrize(
    ("said", "chance", "sentence"),
    [
        ("C++", "The C compiler is old.", "It is written in C++ and Rust."),
        ("-1", "The default is 1.", "The level is −1 below ground."),
        ("2^64", "There were 264 eels.", "It holds 2^64 rows."),
        (".bashrc", "A bashrc is read.", "It reads ~/.bashrc at login."),
    ],
)
def test_the_symbols_of_an_answer_count(said, chance, sentence):
    assert supported(said, chance, sentence) == ("d1", sentence)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("東京", "日本の首都は東京である。"),
        ("北京", "中国的首都是北京。"),
        ("서울", "수도는 서울이다."),
        ("ភ្នំពេញ", "រាជធានីគឺភ្នំពេញ។"),
        ("O'Brien", "The bridge is by O’Brien & Sons."),
        ("1990-1995", "It was shut (1990–1995) for repairs."),
    ],
)
def test_an_answer_is_found_in_scripts_without_spaces_and_typographic_text(said, sentence):
    assert supported(said, sentence) == ("d0", sentence)


def test_an_answer_that_only_a_heading_has_is_found_there():
    changes = "## 3.2.1 (2024-05-04)\r\n\r\n- Fixed the weir.\n"
    assert supported("2024-05-04", changes) == ("d0", "## 3.2.1 (2024-05-04)")
    assert supported("2024-05-04", changes, "It is of 2024-05-04.") == ("d1", "It is of 2024-05-04.")


def test_support_has_its_place_in_the_document():
    shown = passage("It is old. Venn built it.", "d", start=100)
    evidence, found = find_support(episode(search(passage("Not here."), shown), answer("Venn")))
    assert (evidence.doc_id, evidence.start, evidence.end, evidence.text) == ("d", 111, 125, "Venn built it.")
    assert found == shown


def test_of_several_sentences_the_one_the_question_is_about_is_taken():
    texts = "The mill burnt in 1702. The Halm bridge was built in 1702. In 1702 it rained."
    told = asked("1702", texts, about="When was the Halm bridge built?")
    assert find_support(told)[0].text == "The Halm bridge was built in 1702."


def test_a_passage_has_the_number_it_was_shown_with():
    first, second, third = (passage(text, f"d{text}") for text in "abc")
    one = episode(search(first, second), answer("b"))
    assert [passage_number(one, item) for item in (first, second, third)] == ["[1]", "[2]", ""]
    two = episode(search(first, third, failure=NO_ROOM), search(second, first), answer("b"))
    assert [passage_number(two, item) for item in (first, second, third)] == ["[2] of search 2", "[1] of search 2", ""]


def test_a_passage_without_a_word_of_the_question_is_not_about_it():
    told = asked("Brod", "Brod milled corn.", "The bridge stands.")
    about = [is_about_question(told, item) for item in (passage("Brod milled."), passage("It stands.", title="Halm"))]
    assert about == [False, True]


# ---------------------------------------------------------------------------------------------------------- scores


def test_an_answer_is_scored_where_accepted_ones_are_known():
    right = episode(answer("venn"), question=Question("q", "Who?", ("Orsolya Venn", "Venn")))
    assert read_answer(right).scores == {"answer/exact_match": 1.0, "answer/f1": 1.0}
    assert read_answer(episode(search(), question=Question("q", "Who?", ("Venn",)))).scores["answer/f1"] == 0.0
    assert read_answer(episode(answer("Venn"), question=Question("q", "Who?"))).scores == {}
    doubted = read_answer(structs.replace(right, agreement=0.125), min_confidence=0.25)
    assert doubted.abstained and doubted.scores == {"answer/exact_match": 0.0, "answer/f1": 0.0}
    assert "0 answered, 1 not in these documents, 0 of 1 exactly right" in summarise_answers([doubted], evidence=False)


def test_a_model_that_failed_every_time_is_an_error_and_no_answer():
    def failed(said):
        turn = structs.replace(search(), failure=Failure("model", "refused", said))
        return structs.replace(episode(turn), end="failed")

    with pytest.raises(SamplingFailed, match="no such model"):
        refuse_all_failed([failed("no such model"), failed("another")])
    refuse_all_failed([failed("no such model"), episode(answer("Venn"))])
    refuse_all_failed([])


# -------------------------------------------------------------------------------------------------------- not found


def asked(said, *texts, about="Who built the Halm bridge?"):
    shown = search(*(passage(text, f"d{number}") for number, text in enumerate(texts)))
    return episode(shown, answer(said), question=Question("q1", about))


def test_an_answer_counts_if_its_passage_has_the_words_of_the_question():
    told = asked("Venn", "Venn built the Halm bridge.", "Brod built a mill.")
    assert question_overlap(told) == 1.0
    assert is_found(told, 1.0) and read_answer(told, 1.0).found
    refuse_unanswered(told, 1.0)


def test_an_answer_out_of_a_passage_about_something_else_does_not_count():
    told = asked("Brod", "Venn built the Halm bridge.", "Brod built a mill.")
    assert question_overlap(told) == 0.0
    assert not read_answer(told, 0.5).found and read_answer(told, 0.0).found
    with pytest.raises(NotFound, match=r"not found in these documents \(2 passages seen\)"):
        refuse_unanswered(told, 0.5)
    with pytest.raises(NotFound, match=r"\(1 passage seen\)"):
        refuse_unanswered(asked("Brod", "Brod built a mill."), 0.5)


@pytest.mark.parametrize(("end", "limit"), [("turn_limit", "--max-turns"), ("sequence_limit", "--sequence-tokens")])
def test_the_limit_that_ended_an_episode_is_the_one_to_raise(end, limit):
    with pytest.raises(NotFound, match=f"or more {limit}$"):
        refuse_unanswered(structs.replace(episode(search()), end=end))


@pytest.mark.parametrize("last", [answer("Venn"), search(failure=NEVER_MET)])
def test_where_every_search_failed_the_failure_is_said_and_not_that_nothing_was_found(last):
    with pytest.raises(SearchFailed, match="no answer within 1 s"):
        refuse_unanswered(episode(search(failure=NEVER_MET), last))
    assert describe_found(episode(search(failure=NEVER_MET), last)) == "no answer within 1 s"
    with pytest.raises(NotFound):  # one that found nothing has searched
        refuse_unanswered(episode(search(failure=NEVER_MET), search()))


@pytest.mark.parametrize(
    ("said", "question", "reason"),
    [
        ("Brod", "Who built the \u201cHalm Bridge\u201d, near Oss?", "does not mention: Halm, Bridge, Oss"),
        ("Brod", "who milled the mill of the bridge?", "does not mention: bridge"),
        ("yes", "Did Brod build the Halm mill?", "does not mention: Halm"),
        ("Venn", "Who built the Halm bridge?", "no sentence it was shown contains this answer"),
    ],
)
def test_it_is_said_what_of_the_question_a_passage_lacks(said, question, reason):
    assert say_unproven(asked(said, "Brod milled corn in a mill.", about=question)).endswith(reason)


def test_names_count_and_without_names_all_words():
    passages = ("Of the Halm nothing is known.", "Brod built a mill.")
    named = asked("nothing", *passages, about="Who built the Halm Bridge?")
    assert question_overlap(named) == 0.5
    assert is_found(named, 0.5) and not is_found(named, 0.6)
    assert question_overlap(asked("Brod", *passages, about="who built the old bridge?")) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Which river runs beneath the Halm Bridge?", {"halm", "bridg"}),
        ("Who wrote The Vine of Oss?", {"vine", "oss"}),
        ("Who directed “Élan” (Paris)?", {"elan", "pari"}),
        ("Did Venn build a mill?", {"venn"}),
        ("Halm has how many arches?", {"halm", "arch"}),  # the first word is a capital anyway
        ("who was it?", set()),
    ],
)
def test_the_key_words_of_a_question(question, words):
    assert words <= key_words(question) and bool(words) == bool(key_words(question))
    assert key_words(question).isdisjoint({"river", "build", "direct", "wrote"})


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("when did we move the backups?", "In May 2019 we moved the backups to Oslo."),
        ("who was using the old tower?", "In May 2019 it used the old tower."),
        ("who tried the old keys?", "In May 2019 somebody tries the old key."),
    ],
)
def test_short_words_are_compared_by_their_stems(question, text):
    assert question_overlap(asked("May 2019", text, about=question)) == 1.0


def test_an_answer_that_no_passage_has_does_not_count():
    told = asked("Hask", "Venn built the Halm bridge.")
    assert question_overlap(told) == 0.0
    assert not is_found(told, 0.01) and is_found(told, 0.0)


def test_yes_and_no_are_measured_by_the_nearest_passage():
    texts = ("Brod built a mill.", "Venn built the Halm bridge.")
    assert question_overlap(asked("yes", *texts, about="Did Venn build the Halm bridge?")) >= 0.75
    assert question_overlap(asked("no", texts[0], about="Is Oss a river?")) == 0.0
    assert question_overlap(asked("yes", texts[0], about="Was it?")) == 1.0
    assert question_overlap(asked("yes", about="Was it?")) == 0.0


@pytest.mark.parametrize("question", ["Who was it?", "What is Go?", "hi"])
def test_a_question_without_content_words_is_answered_by_what_a_sentence_says(question):
    assert question_overlap(asked("Venn", "Venn built it.", about=question)) == 1.0
    for told in (asked("Venn", about=question), asked("Venn", "Brod built it.", about=question)):
        assert not is_found(told, 0.01) and is_found(told, 0.0)
        assert say_unproven(told) == "no sentence it was shown contains this answer"
