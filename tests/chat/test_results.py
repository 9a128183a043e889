"""Search results as they are shown, whole and cut."""

from hypothesis import given
from hypothesis import strategies as st

import tiny
from quaere.chat.protocol import Message, format_results, shown_results
from quaere.chat.renderer import Renderer
from quaere.chat.spans import find_evidence
from quaere.records import Hit, Passage, SearchResult


def results(*groups):
    return [
        SearchResult("q", tuple(Hit(tiny.passage(text, number=number), 1.0) for number, text in enumerate(texts)))
        for texts in groups
    ]


def test_a_passage_ends_where_its_message_was_cut_and_those_behind_it_were_not_shown():
    found = [
        SearchResult("q", (Hit(Passage("a#0", "a", "Halm", "A bridge of stone.", 7, 25), 2.0),)),
        *results(["Oss"]),
    ]
    renderer = Renderer(tiny.tokenizer())
    whole = Message("tool", format_results(found))
    upto = len(renderer.encode_parts(whole.parts[:2])) + len(renderer.encode_parts(("Halm\nA bri",)))
    first, second = shown_results(found, renderer.cut(whole, upto))
    (hit,) = first.hits
    assert hit.passage.text == "A bridge of stone."[: len(hit.passage.text)]
    assert 0 < len(hit.passage.text) < len("A bridge of stone.")
    assert hit.passage.end == hit.passage.start + len(hit.passage.text)
    assert second == SearchResult("q", ())
    assert find_evidence("of stone", [hit.passage]) is None


def test_results_of_several_queries_stand_apart():
    parts = format_results(results(["A bridge.", "A river."], [], ["A town."]))
    text = "".join(part if isinstance(part, str) else part.text for part in parts)
    shown = [part.text for part in parts if not isinstance(part, str)]
    assert text == (
        f"Results of query 1:\n[1]\n{shown[0]}\n\n[2]\n{shown[1]}\n\n"
        f"Results of query 2:\nNo passage was found.\n\nResults of query 3:\n[1]\n{shown[2]}"
    )


def test_what_was_not_cut_stays_as_it_was():
    found = results(["A bridge.", "A river."], [], ["A town."])
    assert list(shown_results(found, Message("tool", format_results(found)))) == found


@given(
    texts=st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=3), max_size=3),
    max_tokens=st.integers(0, 120),
)
def test_nothing_can_be_quoted_that_the_tokens_did_not_show(texts, max_tokens):
    found = results(*texts)
    renderer = Renderer(tiny.tokenizer())
    whole = Message("tool", format_results(found))
    said = renderer.decode(renderer.encode_parts(whole.parts)[:max_tokens])
    shown = shown_results(found, renderer.cut(whole, max_tokens))
    assert [len(result.hits) for result in shown] <= [len(result.hits) for result in found]
    for result in shown:
        for hit in result.hits:
            assert hit.passage.titled_text.rstrip("\ufffd") in said
