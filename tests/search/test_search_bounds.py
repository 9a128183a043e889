"""Bounds and counts of reading: what a file may unpack to, patterns that are followed, folders left out."""

import re

import pytest

from making_files import make_epub, make_xlsx, make_zip, replace_member
from quaere.search.extracted import Unreadable
from quaere.search.files import read_file
from quaere.search.formats.office import open_archive
from quaere.search.sources import FileRecord, read_sources, write_sources
from quaere.search.walk import FileChoice, IgnoreFiles, Walk


def test_an_archive_may_unpack_to_just_as_much_as_it_may():
    text, picture = b"x" * 1000, b"y" * 3000
    data = make_zip({"a.xml": text, "b.png": picture})
    assert open_archive(data, 1000).namelist() == ["a.xml", "b.png"]
    with pytest.raises(Unreadable, match="unpacks to more than"):
        open_archive(data, 999)
    with pytest.raises(Unreadable, match="unpacks to more than"):
        open_archive(make_zip({"a.xml": text, "b.png": picture + b"y"}), 1000)


def test_a_sheet_is_read_whole_whatever_it_says_about_its_size(tmp_path):
    pytest.importorskip("openpyxl", reason="openpyxl is in the dev extra")
    book = make_xlsx({"Stores": [["Item", "Cost"], ["Rope", 120], ["Tar", 7]]})
    with open_archive(book, 1 << 20) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    said = re.sub(r"<dimension[^>]*>", "", sheet).replace("<sheetData>", '<dimension ref="A1:A2"/><sheetData>')
    (tmp_path / "lies.xlsx").write_bytes(replace_member(book, "xl/worksheets/sheet1.xml", said))
    assert "Item: Tar; Cost: 7" in read_file(tmp_path / "lies.xlsx").text


def test_a_chapter_is_named_by_eighty_letters_of_its_heading(tmp_path):
    (tmp_path / "book.epub").write_bytes(make_epub("Sagas", f"<h1>{'x' * 100}</h1><p>one"))
    assert {part.group for part in read_file(tmp_path / "book.epub").parts} == {f"chapter {'x' * 80}"}


def test_patterns_with_more_than_two_wildcards_are_said_and_not_followed(tmp_path):
    (tmp_path / ".gitignore").write_text("*a*.txt\n*b*c*.txt\n")
    said = []
    ignores = IgnoreFiles(tmp_path, lambda path, problem: said.append(problem))
    ignores.enter(tmp_path)
    assert ignores.match(tmp_path / "bar.txt", is_folder=False)
    assert not ignores.match(tmp_path / "xbc.txt", is_folder=False)
    assert said == ["1 patterns ignored: too many wildcards or lines"]


def test_a_folder_left_out_is_counted_once(tmp_path):
    for folder in ("build", "drafts", "notes"):
        (tmp_path / folder).mkdir()
        for name in ("a.md", "b.md"):
            (tmp_path / folder / name).write_text("The Oss.")
    (tmp_path / ".gitignore").write_text("build/\n")
    walk = Walk([tmp_path], FileChoice(max_file_mib=1, exclude=["drafts/"]))
    assert [file.id for file in walk.files()] == ["notes/a.md", "notes/b.md"]
    assert (walk.report.num_gitignored, walk.report.num_excluded) == (1, 1)


def test_what_is_written_of_sources_does_not_depend_on_the_order_of_work(tmp_path):
    record = FileRecord("rivers.md", 8, 9, duplicates=["b", "a"])
    write_sources(tmp_path, [], [record], began_ns=10)
    assert [kept.duplicates for kept in read_sources(tmp_path)] == [["a", "b"]]
