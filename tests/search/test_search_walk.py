"""Which files become documents: several sources, globs, .gitignore."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.search.corpus import CorpusReader
from quaere.search.extracted import Part, Places, find_stretches
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index
from quaere.search.walk import FileChoice


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def tree(tmp_path):
    return write(tmp_path / "docs", a_md="one", b_txt="two", drafts__c_md="three", drafts__deep__d_csv="four,4")


def ids(source, **options):
    reader = CorpusReader(source, FileChoice(**options))
    return [document.id for document in reader], reader.report


# ------------------------------------------------------------------------------------------------------------ sources


def test_several_sources_are_one_corpus(tmp_path, tree):
    write(tmp_path / "more" / "docs", a_md="five")
    (tmp_path / "notes.txt").write_text("six")
    sources = [tmp_path / "notes.txt", tree, tmp_path / "more" / "docs"]
    found, _ = ids(sources)
    assert found == [
        "docs/a.md",
        "docs/b.txt",
        "docs/drafts/c.md",
        "docs/drafts/deep/d.csv",
        "more/docs/a.md",
        "notes.txt",
    ]
    assert found == ids(sources[::-1])[0]


def test_if_nothing_is_left_the_patterns_are_named(tree):
    with pytest.raises(BadInput, match=r"in \S+docs \(4 left out by --include and --exclude\)") as caught:
        ids(tree, include=["*.mdd"], exclude=["deep/"])
    assert caught.value.hint == "--include '*.md'"
    write(tree, _gitignore="*\n")
    with pytest.raises(BadInput, match=r"in \S+docs \(3 left out by a \.gitignore\)") as caught:
        ids(tree)
    assert caught.value.hint == "--no-gitignore"


def test_a_file_that_two_sources_hold_is_read_once(tree):
    found, report = ids([tree, tree / "drafts", tree / "a.md"])
    assert found == ["a.md", "b.txt", "drafts/c.md", "drafts/deep/d.csv"]
    assert report.num_duplicates == 0


def test_links_from_one_source_into_nowhere_else(tmp_path, tree):
    other = write(tmp_path / "other", secret_txt="secret", plain_txt="plain")
    (tmp_path / "outside.txt").write_text("outside")
    (other / "link.txt").symlink_to(tmp_path / "outside.txt")
    found, report = ids([tree, other])
    assert "other/link.txt" not in found
    assert report.unreadable == ["other/link.txt: a link out of the folder"]


def test_every_source_must_be_there(tmp_path, tree):
    with pytest.raises(BadInput, match="there is no"):
        ids([tree, tmp_path / "nowhere"])


def test_documents_of_several_sources_lead_back_to_their_files(tmp_path, tree):
    (tmp_path / "notes.txt").write_text("six")
    (tmp_path / "private.txt").write_text("not a part of it")
    (tmp_path / "rows.jsonl").write_text('{"id": "private.txt", "text": "a row"}')
    index = build_index([tree, tmp_path / "notes.txt", tmp_path / "rows.jsonl"], tmp_path / "index")
    assert index.document_file("docs/a.md") == tree / "a.md"
    assert index.document_file("notes.txt") == tmp_path / "notes.txt"
    assert index.document_file("private.txt") is None
    assert [name.rpartition("/")[2] for name in index.manifest.sources] == ["docs", "notes.txt", "rows.jsonl"]


def test_the_command_takes_several_sources_and_globs(tmp_path, tree, capsys):
    (tmp_path / "notes.txt").write_text("six")
    out = str(tmp_path / "index")
    words = ["index", str(tree), str(tmp_path / "notes.txt"), "--out", out]
    words += ["--include", "*.md", "--include", "*.csv", "--exclude", "deep/", "--no-gitignore"]
    assert main(words) == 0
    assert "left out by --include and --exclude: 2" in capsys.readouterr().out
    settings = open_index(tmp_path / "index").manifest.settings
    assert (settings.include, settings.exclude, settings.gitignore) == (("*.md", "*.csv"), ("deep/",), False)
    assert list(open_index(tmp_path / "index").document_ids()) == ["docs/a.md", "docs/drafts/c.md", "notes.txt"]


def test_an_index_among_the_documents_is_left_out(tmp_path, tree, capsys):
    nested = build_index(tree / "b.txt", tree / "drafts/index").path
    found, report = ids(tree)
    assert found == ["a.md", "b.txt", "drafts/c.md", "drafts/deep/d.csv"]
    assert report.unreadable == ["drafts/index: an index, whose files are no documents"]
    assert not report.ignored_suffixes
    index = tmp_path / "index"
    assert main(["index", str(tree), "--out", str(index)]) == 0
    assert "left out, not readable: 1\n    drafts/index: an index" in capsys.readouterr().out
    assert open_index(index).find_changes() == []
    (nested / "manifest.json").unlink()  # what is left of it is a folder like any other
    write(nested, e_md="five")
    assert "drafts/index/e.md" in ids(tree)[0] and open_index(index, check_sources=False).find_changes()


# -------------------------------------------------------------------------------------------------------------- globs


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"include": ["*.md"]}, ["a.md", "drafts/c.md"]),
        ({"include": ["/*.md"]}, ["a.md"]),
        ({"exclude": ["*.md"]}, ["b.txt", "drafts/deep/d.csv"]),
        ({"exclude": ["drafts/"]}, ["a.md", "b.txt"]),
        ({"include": ["drafts/**"], "exclude": ["*.csv"]}, ["drafts/c.md"]),
        ({"exclude": ["*.md", "!a.md"]}, ["a.md", "b.txt", "drafts/deep/d.csv"]),
    ],
)
def test_globs_choose_files(tree, options, found):
    assert ids(tree, **options)[0] == found


def test_a_glob_that_is_none_is_refused(tree):
    with pytest.raises(BadInput, match="--include"):
        ids(tree, include=["!"])


# ---------------------------------------------------------------------------------------------------------- gitignore


def test_gitignore_is_honoured_at_every_level(tree):
    (tree / ".gitignore").write_text("*.txt\n/drafts/deep/\n# a comment\n\n")
    (tree / "drafts" / ".gitignore").write_text("*.md\n!c.md\n")
    write(tree, drafts__e_md="five", drafts__keep_txt="six")
    found, report = ids(tree)
    assert found == ["a.md", "drafts/c.md"]
    assert report.num_gitignored == 4
    assert ids(tree, gitignore=False)[0] == [
        "a.md", "b.txt", "drafts/c.md", "drafts/deep/d.csv", "drafts/e.md", "drafts/keep.txt"
    ]  # fmt: skip


def test_a_file_that_was_named_is_read_all_the_same(tree):
    (tree / ".gitignore").write_text("*")
    assert ids(tree / "a.md", exclude=["*.md"])[0] == ["a.md"]


@pytest.mark.timeout(60)
def test_a_gitignore_made_to_hang_is_not_followed(tmp_path, tree):
    name = "a" * 240
    (tree / f"{name}.md").write_text("long")
    (tree / ".gitignore").write_text("*a*a*a*a*a*a*a*b\n**/a/**/a/**/b\nb.txt\n" + "*a*b\n" * 5000)
    (tree / "drafts" / ".gitignore").symlink_to(tmp_path / "outside")
    found, report = ids(tree)
    assert "a.md" in found and f"{name}.md" in found and "b.txt" not in found and "drafts/c.md" in found
    assert report.problems == [
        ".gitignore: 4003 patterns ignored: too many wildcards or lines",
        "drafts/.gitignore: ignored: not a regular file of at most 64 KiB",
    ]


def test_a_gitignore_that_cannot_be_read_is_named(tree, monkeypatch):
    (tree / ".gitignore").write_text("*.md")

    def read_text(path, *rest, **options):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_text", read_text)
        found, report = ids(tree)
    assert "a.md" in found and report.problems == [".gitignore: ignored: Input/output error"]


def test_left_out_files_are_no_part_of_the_fingerprint(tmp_path, tree):
    (tree / "b.txt").unlink()
    plain = build_index(tree, tmp_path / "one").fingerprint
    (tree / "b.txt").write_text("two")
    assert build_index(tree, tmp_path / "two", IndexSettings(exclude=("b.txt",))).fingerprint == plain


# ------------------------------------------------------------------------------------------------------------- places


@given(st.lists(st.tuples(st.sampled_from("pq"), st.text("a\n ", min_size=1)), min_size=1))
def test_stretches_cover_the_text_and_places_name_its_parts(parts):
    text, found = "", []
    for number, (group, part) in enumerate(parts, start=1):
        found.append(Part(len(text), group, "row", number))
        text += part
    stretches = list(find_stretches(text, found))
    assert "".join(text[start:end] for start, end in stretches) == text
    places = Places(text, found)
    for (start, end), following in zip(stretches, [*stretches[1:], (len(text), 0)], strict=True):
        inside = [part for part in found if start <= part.start < end]
        assert len({part.group for part in inside}) == 1 and following[0] == end
        first, last = inside[0].number, inside[-1].number
        named = f"row {first}" if first == last else f"rows {first}-{last}"
        assert places.name(start, end) == f"{inside[0].group}, {named}"


@given(st.text("a\n"), st.data())
def test_lines_are_counted_as_editors_count_them(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    first, last = 1 + text[:start].count("\n"), 1 + text[:end].count("\n")
    assert Places(text, ()).name(start, end) == (f"line {first}" if first == last else f"lines {first}-{last}")
