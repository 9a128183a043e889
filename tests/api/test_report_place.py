"""Where reports are written: one file or a folder, and names that are valid anywhere."""

import os
import re

import pytest

from quaere.api.report_files import _file_name, report_place, write_report
from quaere.errors import BadInput
from reported import make_report


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.md", "md"),
        ("a.MARKDOWN", "md"),
        ("a.html", "html"),
        ("a.htm", "html"),
        ("a.docx", "docx"),
        ("reports", "folder"),
        ("a.jsonl", "jsonl"),
    ],
)
def test_the_kind_follows_the_name(tmp_path, name, kind):
    place = report_place(tmp_path / "new" / "inner" / name)
    assert place.kind == kind
    assert place.folder.is_dir()
    assert report_place(place.path).kind == kind  # a folder that is there is one


def test_a_folder_may_have_a_dot_in_its_name(tmp_path):
    (tmp_path / "v1.2").mkdir()
    assert report_place(tmp_path / "v1.2", 3).kind == "folder"


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(BadInput, match=r"must end in \.md, \.html"):
        report_place(tmp_path / "a.odt")
    with pytest.raises(BadInput, match="is one file, and there are 2 reports"):
        report_place(tmp_path / "a.md", 2)
    report_place(tmp_path / "reports", 2)
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot write to"):
        report_place(tmp_path / "file" / "a.md")


def test_files_of_reports_that_exist_are_refused_without_force(tmp_path):
    (tmp_path / "q2.html").touch()
    assert report_place(tmp_path, names=["q1"]).kind == "folder"
    with pytest.raises(BadInput, match=r"q2\.html exists already"):
        report_place(tmp_path, 2, names=["q1", "q2"])
    assert report_place(tmp_path, to=("md",), names=["q2"]).formats == ("md",)
    assert report_place(tmp_path, names=["q2"], force=True).kind == "folder"


def test_a_folder_without_permission_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # to root everything is permitted
    with pytest.raises(BadInput, match="no permission"):
        report_place(tmp_path / "a.md")


def test_a_folder_gets_both_formats_and_a_file_one(tmp_path):
    both = write_report(make_report(), report_place(tmp_path / "reports"), "q1", None, "docs")
    assert [path.name for path in both] == ["q1.md", "q1.html"]
    assert [path.read_text().startswith("<!DOCTYPE html>") for path in both] == [False, True]
    (page,) = write_report(make_report(), report_place(tmp_path / "one.html"), "q1", None, "docs")
    assert page.name == "one.html"
    assert page.read_text() == both[1].read_text() != both[0].read_text()


def test_different_names_stay_different():
    assert _file_name("q1") == "q1"
    assert re.fullmatch(r"a-b-[0-9a-f]{8}", _file_name("../a b"))
    assert re.fullmatch(r"report-[0-9a-f]{8}", _file_name(".."))
    assert len({_file_name(name) for name in ("a b", "a/b", "a  b", "a-b")}) == 4
    assert len(_file_name("x" * 300)) < 100
