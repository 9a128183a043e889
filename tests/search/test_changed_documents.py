"""Which documents differ between two states of an index."""

from hypothesis import given
from hypothesis import strategies as st

from quaere.search.changed_documents import ChangedDocuments, digest_documents, find_changed
from quaere.search.index_build import build_index, update_index

STATES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12"))


@given(STATES, STATES)
def test_every_document_is_the_same_or_in_one_list(before, now):
    found = find_changed(before, now)
    lists = (found.added, found.changed, found.removed)
    listed = [name for names in lists for name in names]
    assert len(set(listed)) == len(listed) and found.touched == set(listed)
    for name in before.keys() | now.keys():
        assert (name in found.touched) == (before.get(name) != now.get(name))
        assert (name in found.readable) == (name in now and before.get(name) != now[name])
    assert found.num_documents == len(now)


def test_titles_and_texts_count_and_other_documents_stay(tmp_path):
    pages = tmp_path / "pages"
    pages.mkdir()
    for name in ("halm", "oss", "lorn"):
        (pages / f"{name}.md").write_text(f"# {name}\n\nIt was built by Venn.\n")
    before = digest_documents(build_index(pages, tmp_path / "index"))
    assert before.keys() == {"halm.md", "oss.md", "lorn.md"} and len(set(before.values())) == 3
    (pages / "halm.md").write_text("# Halm\n\nIt was built by Venn.\n")
    (pages / "oss.md").unlink()
    (pages / "new.md").write_text("Brod built it.")
    now = digest_documents(update_index(tmp_path / "index").index)
    assert find_changed(before, now) == ChangedDocuments(("new.md",), ("halm.md",), ("oss.md",), 3)
