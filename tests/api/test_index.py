"""`quaere.Index`: build, open, search."""

import pytest

import quaere
from backups import SENTENCE


def test_an_index_is_built_opened_and_searched(notes):
    index = quaere.Index.build("notes/", "notes-index")
    hits = index.search("backups", k=3)
    assert isinstance(hits[0], quaere.Hit) and hits[0].passage.doc_id == "ops.md" and hits[0].score > 0
    again = quaere.Index.open(notes / "notes-index")
    assert again.search("backups") == hits and len(again) == len(list(again.passages())) == 2
    assert again.search_many(["backups", "korrin"], k=1)[1][0].passage.title == "The Oss"
    assert SENTENCE in again.document("ops.md") and list(again.document_ids()) == ["ops.md", "oss.md"]
    assert "2 passages of 2 documents" in repr(again)


def test_options_go_where_they_belong(notes):
    told = []
    quaere.Index.build("notes", "index", on_progress=lambda *said: told.append(said))
    index = quaere.Index.build("notes", "index", force=True, max_words=4, k1=0.9)
    assert len(index) > 2 and told
    settings = index.opened.manifest.settings
    assert (settings.engine, settings.chunks.max_words, settings.bm25.k1) == ("bm25", 4, 0.9)


def test_files_are_chosen_as_by_the_command(notes):
    index = quaere.Index.build("notes", "index", include=["o*.md"], exclude=["oss.md"], gitignore=False)
    assert list(index.document_ids()) == ["ops.md"]


@pytest.mark.parametrize("k1", [float("nan"), float("inf"), -1.0])
def test_an_index_stays_if_another_cannot_replace_it(notes, k1):
    quaere.Index.build("notes", "index")
    with pytest.raises(quaere.BadInput, match="a finite k1 >= 0"):
        quaere.Index.build("notes", "index", force=True, k1=k1)
    assert quaere.Index.open("index").search("backups")


@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (lambda: quaere.Index.build("notes", "index", max_wrods=4), "did you mean max_words?"),
        (lambda: quaere.Index.build("notes", "index", max_words="many"), "max_words"),
        (lambda: quaere.Index.build("notes", "index", engine="bm26"), "bm26"),
        (lambda: quaere.Index.build("nowhere", "index"), "nowhere"),
        (lambda: quaere.Index.build("notes", "notes"), "not an index"),
        (lambda: quaere.Index.build("notes", "index").search(["backups"]), "queries are texts"),
        (lambda: quaere.Index.build("notes", "index").search_many("backups"), "queries are texts"),
        (lambda: quaere.Index.build("notes", "index").search_many(["backups", 3]), "queries are texts"),
        (lambda: quaere.Index.build("notes", "index").search("backups", k=0), "at least 1"),
    ],
)
def test_bad_input_is_said_in_a_line(notes, attempt, said):
    with pytest.raises(quaere.BadInput, match=said) as caught:
        attempt()
    assert "\n" not in str(caught.value)


def test_what_to_try_next_stands_below_the_message_of_an_error(notes):
    with pytest.raises(quaere.QuaereError) as caught:
        quaere.Index.open("nowhere")
    assert caught.value.__notes__ == [f"try: {caught.value.hint}"] and caught.value.hint
    with pytest.raises(quaere.QuaereError, match="not an index") as caught:
        quaere.Index.open("notes")
    assert caught.value.hint == "quaere index notes --out INDEX"
