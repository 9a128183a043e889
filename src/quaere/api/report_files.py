"""Where reports are written, and the paths from there to the cited documents.

place = report_place(Path("report.html"))       # one page
place = report_place(Path("reports"))           # a folder: NAME.md and NAME.html for every report
"""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from msgspec import Struct

from quaere.chat.report_pages import to_html, to_markdown
from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.records import Passage, Report
from quaere.search.index import Index

_SUFFIXES: dict[str, Literal["md", "html"]] = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html"}
_DOCUMENTS = "documents"


class ReportPlace(Struct, frozen=True):
    """A file for one report, or a folder for several.

    ReportPlace(path=Path("report.html"), kind="html")
    """

    path: Path
    kind: Literal["md", "html", "folder"]

    @property
    def folder(self) -> Path:
        """The folder that the files are written to."""
        return self.path if self.kind == "folder" else self.path.parent


def report_place(out: Path, num_reports: int = 1) -> ReportPlace:
    """The place that `--out` names; `BadInput` now, not after the work, if it cannot be written."""
    kind = "folder" if out.is_dir() or not out.suffix else _SUFFIXES.get(out.suffix.lower())
    if kind is None:
        raise BadInput(
            f"--out {out} must end in .md or .html, or be a folder", hint="--out report.md, report.html or a folder"
        )
    if kind != "folder" and num_reports > 1:
        raise BadInput(f"--out {out} is one file, and there are {num_reports} reports", hint="--out FOLDER")
    place = ReportPlace(out, kind)
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(place.folder, os.W_OK)
    except OSError as error:
        raise BadInput(f"cannot write to {place.folder}: {error.strerror}") from error
    if not writable:
        raise BadInput(f"cannot write to {place.folder}: no permission", hint="choose another --out")
    return place


def write_report(report: Report, place: ReportPlace, name: str, index: Index | None, index_name: str) -> list[Path]:
    """Write the report as one file, or in both formats into the folder; the paths of the files.

    In a folder, cited documents that are not files of their own (rows of JSON Lines) are written beside the reports, so
    that every source can be opened.
    """

    def link(passage: Passage) -> str:
        return _document_path(passage, place, index)

    stem = _file_name(name)
    paths = {"md": place.folder / f"{stem}.md", "html": place.folder / f"{stem}.html"}
    wanted = paths if place.kind == "folder" else {place.kind: place.path}
    for kind, path in wanted.items():
        page = (to_markdown if kind == "md" else to_html)(report, link, index=index_name)
        write_file(path, page)
    return list(wanted.values())


def _document_path(passage: Passage, place: ReportPlace, index: Index | None) -> str:
    """The path from the report to the document, which is written first if needed; "" if there is no file."""
    if index is None:
        return ""
    file = index.document_file(passage.doc_id)
    if file is None and place.kind == "folder":
        file = place.folder / _DOCUMENTS / f"{_file_name(passage.doc_id)}.txt"
        write_file(file, index.document(passage.doc_id))
    if file is None:
        return ""
    try:
        return Path(os.path.relpath(file, place.folder)).as_posix()
    except ValueError:  # on another drive
        return ""


def _file_name(name: str) -> str:
    """A name that is valid on any file system; a changed name gets a digest, so that different names stay different.

    _file_name("q1") -> "q1"; _file_name("../a b") -> "a-b-3f1c09d2"
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80].strip(".-")
    return safe if safe == name else f"{safe or 'report'}-{blake2b(name.encode(), digest_size=4).hexdigest()}"
