"""Files of a report: one in any format, a folder of several, or the file that DeepResearch Bench reads.

place = report_place(Path("reports"), to=("html", "pdf"))
write_report(report, place, "q1", index, "docs-index", searches=["source of the Oss"])
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct

from quaere.chat.report_docx import to_docx
from quaere.chat.report_pages import to_html, to_markdown
from quaere.chat.report_pdf import check_pdf, to_pdf
from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.records import Passage, Report
from quaere.search.index import Index

Format = Literal["md", "html", "docx", "pdf"]
FORMATS: tuple[Format, ...] = get_args(Format)
_WRITERS: dict[Format, Callable[..., str | bytes]] = {
    "md": to_markdown,
    "html": to_html,
    "docx": to_docx,
    "pdf": to_pdf,
}
_SUFFIXES: dict[str, Format | Literal["jsonl"]] = {".markdown": "md", ".htm": "html", ".jsonl": "jsonl"}
_SUFFIXES |= {f".{kind}": kind for kind in FORMATS}
_DOCUMENTS = "documents"


class ReportPlace(Struct, frozen=True):
    """A file for one report, a folder for several in these formats, or a file of JSON lines for several.

    ReportPlace(path=Path("report.html"), kind="html", formats=("html",))
    """

    path: Path
    kind: Format | Literal["folder", "jsonl"]
    formats: tuple[Format, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder that the files are written to."""
        return self.path if self.kind == "folder" else self.path.parent


def report_place(
    out: Path, num_reports: int = 1, to: Sequence[str] = (), *, names: Sequence[str] = (), force: bool = False
) -> ReportPlace:
    """The place that `--out` and `--to` name; `BadInput` now, not after the work, if it cannot be written.

    Of the reports of these names, no file may exist, unless `force`: it may be a document of the user.
    """
    kind = "folder" if out.is_dir() or not out.suffix else _SUFFIXES.get(out.suffix.lower())
    if kind is None:
        hint = "--out report.html, or a folder with --to html,pdf"
        raise BadInput(f"--out {out} must end in .{', .'.join(FORMATS)} or .jsonl, or be a folder", hint=hint)
    if to and kind != "folder":
        raise BadInput(f"--to needs a folder as --out, not the file {out}", hint=f"--out {out.with_suffix('')}")
    if kind not in ("folder", "jsonl") and num_reports > 1:
        raise BadInput(f"--out {out} is one file, and there are {num_reports} reports", hint="--out FOLDER")
    formats = read_formats(to) if kind == "folder" else () if kind == "jsonl" else (kind,)
    if "pdf" in formats:
        check_pdf()
    if kind == "jsonl":
        _read_lines(out)
    place = ReportPlace(out, kind, formats)
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(place.folder, os.W_OK)
    except OSError as error:
        raise BadInput(f"cannot write to {place.folder}: {error.strerror}") from error
    if not writable:
        raise BadInput(f"cannot write to {place.folder}: no permission", hint="choose another --out")
    files = (file for name in names for file in _report_files(place, name).values())
    if not force and (taken := next((file for file in files if file.exists()), None)):
        raise BadInput(f"{taken} exists already", hint="choose another --out, or add --force to replace it")
    return place


def read_formats(to: Sequence[str]) -> tuple[Format, ...]:
    """The formats of these names, by default Markdown and HTML."""
    if unknown := next((name for name in to if name not in FORMATS), None):
        raise BadInput(f"--to has no format {unknown!r}", hint=f"--to {','.join(FORMATS)}, or some of them")
    return tuple(kind for kind in FORMATS if kind in to) or ("md", "html")


def write_report(
    report: Report, place: ReportPlace, name: str, index: Index | None, index_name: str, searches: Sequence[str] = ()
) -> list[Path]:
    """Write the report as one file, or in every format into the folder; the paths of the files.

    In a folder, cited documents that are not files of their own (rows of JSON Lines) are written beside the reports, so
    that every source can be opened.
    """
    link = partial(_document_path, place=place, index=index)
    if place.kind == "jsonl":
        return [_add_line(report, place.path, to_markdown(report, link, index=index_name, searches=searches))]
    paths = _report_files(place, name)
    for kind, path in paths.items():
        write_file(path, _WRITERS[kind](report, link, index=index_name, searches=searches))
    return list(paths.values())


def _report_files(place: ReportPlace, name: str) -> dict[Format, Path]:
    """The files of a report by format; none for a file of JSON lines, which reports are added to."""
    if place.kind == "folder":
        return {kind: place.folder / f"{_file_name(name)}.{kind}" for kind in place.formats}
    return dict.fromkeys(place.formats, place.path)


def _add_line(report: Report, path: Path, article: str) -> Path:
    """Add the report to a file of DeepResearch Bench's form; an earlier report on the question is replaced."""
    question = report.question
    number = int(question.id) if question.id.isdecimal() else question.id  # the bench numbers its prompts
    row = {"id": number, "prompt": question.text, "article": article}
    rows = [*(one for one in _read_lines(path) if one["prompt"] != question.text), row]
    write_file(path, "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in rows))
    return path


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The reports that the file has; `BadInput` if it is a file of something else, which is not replaced."""
    try:
        rows = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    except (OSError, ValueError):
        rows = [None]
    if any(not isinstance(row, dict) or "prompt" not in row for row in rows):
        raise BadInput(f"{path} exists and is no file of reports", hint="choose another --out")
    return rows


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
