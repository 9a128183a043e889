import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.errors import BadInput
from quaere.search.chunks import ChunkSettings, cut
from quaere.search.corpus import Document
from quaere.search.words import count_words

prose = st.lists(
    st.one_of(
        st.sampled_from(
            ["The Oss rises. ", "Who? ", "東京都は首都である。", "\n\n", "\n", "हिन्दी। ", "a" * 70, " ", "ที่"]
        ),
        st.text(max_size=20),
    ),
    max_size=60,
).map("".join)


def document(text, kind="file"):
    return Document(id="d", title="T", text=text, kind=kind)


@given(prose, st.integers(1, 30), st.integers(0, 10))
def test_passages_are_stretches_of_the_document_and_leave_no_word_out(text, max_words, overlap):
    settings = ChunkSettings(max_words=max_words, overlap_words=min(overlap, max_words - 1))
    passages = cut(document(text), settings)
    covered = set()
    for number, passage in enumerate(passages):
        assert passage.id == f"d#{number}"
        assert passage.text == text[passage.start : passage.end]
        assert passage.text == passage.text.strip() != ""
        covered.update(range(passage.start, passage.end))
    assert all(position in covered for position, character in enumerate(text) if not character.isspace())
    starts = [passage.start for passage in passages]
    ends = [passage.end for passage in passages]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))
    if not settings.overlap_words:
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


@given(prose, st.integers(1, 30))
def test_passages_keep_to_the_budget(text, max_words):
    # A short rest joins the last passage, so a quarter more is allowed.
    passages = cut(document(text), ChunkSettings(max_words=max_words))
    assert all(count_words(passage.text) <= max_words + max_words // 4 for passage in passages)


def test_a_short_document_is_one_passage():
    text = "\n Two paragraphs.\n\nNot worth cutting. \n"
    (passage,) = cut(document(text), ChunkSettings())
    assert (passage.id, passage.start, passage.end) == ("d#0", 2, len(text) - 2)


def test_cuts_fall_between_paragraphs_then_sentences_then_words():
    text = "One two three four.\n\nFive six. Seven eight nine ten. Eleven.\n\n" + "word " * 12
    texts = [passage.text for passage in cut(document(text), ChunkSettings(max_words=5))]
    assert texts == [
        "One two three four.",
        "Five six.",
        "Seven eight nine ten. Eleven.",
        "word word word word word",
        "word word word word word",
        "word word",
    ]


def test_text_without_spaces_is_cut_between_sentences():
    text = "東京都は日本の首都である。" * 30
    passages = cut(document(text), ChunkSettings(max_words=40))
    assert len(passages) > 4
    assert all(passage.text.endswith("。") for passage in passages)


def test_a_short_rest_joins_the_last_passage():
    text = "a b c d e f g h.\n\nlast"
    assert [p.text for p in cut(document(text), ChunkSettings(max_words=8))] == [text]


def test_neighbours_share_sentences_when_asked_to():
    text = "One two. Three four. Five six. Seven eight."
    texts = [passage.text for passage in cut(document(text), ChunkSettings(max_words=4, overlap_words=2))]
    assert texts == ["One two. Three four.", "Three four. Five six.", "Five six. Seven eight."]


def test_rows_stay_whole_up_to_a_length():
    text = "word. " * 200
    assert len(cut(document(text, "row"), ChunkSettings())) == 1
    assert len(cut(document(text, "file"), ChunkSettings())) == 2
    assert len(cut(document(text, "row"), ChunkSettings(row_words=0))) == 2


@pytest.mark.parametrize(
    "settings",
    [
        ChunkSettings(max_words=0),
        ChunkSettings(overlap_words=120),
        ChunkSettings(overlap_words=-1),
        ChunkSettings(row_words=-1),
    ],
)
def test_impossible_sizes_are_refused(settings):
    with pytest.raises(BadInput):
        settings.check()


def test_the_smallest_sizes_are_taken():
    settings = ChunkSettings(max_words=1, row_words=0)
    settings.check()
    assert [passage.text for passage in cut(document("One two.", "row"), settings)] == ["One", "two."]
