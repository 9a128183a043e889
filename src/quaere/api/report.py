"""`quaere.report`: an agent's model writes a report whose citations lead to the passages it was shown.

report(agent, "What is known of the Oss?", out="report.html").text
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Unpack

from msgspec import Struct, structs

from quaere.api.agent import Agent, LimitOptions, check_limits, make_question
from quaere.api.answer import refuse_all_failed
from quaere.chat.report_pages import to_html, to_markdown
from quaere.dialects.notes import Notes
from quaere.dialects.registry import find_dialect
from quaere.dialects.report.report_writer import ReportWriter as Writer
from quaere.dialects.report.report_writer import bind_report
from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.policies.catalogue import needs_guide
from quaere.recipes.registry import writes_reports
from quaere.records import Episode, Passage, Question, Report, ReportTask, Turn
from quaere.rollout.episode import Limits
from quaere.search.index import Index
from quaere.search.searcher import NoSearcher


class WrittenReport(Struct, frozen=True):
    """A report, the files it was written to, and the episode it comes from; None where it ended without a report.

    WrittenReport(report=Report(...), files=(Path("report.html"),), episode=Episode(...)).text
    """

    report: Report | None
    files: tuple[Path, ...]
    episode: Episode

    @property
    def text(self) -> str:
        """The report as it was written, with its citations; "" where there is none."""
        return self.report.text if self.report else ""

    def __str__(self) -> str:
        return self.text


def report(
    agent: Agent,
    question: str | Question,
    *,
    out: str | Path | None = None,
    guided: bool | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    **limits: Unpack[LimitOptions],
) -> WrittenReport:
    """Let the agent's model search and write a report on a question.

    `out` is a page (`report.md`, `report.html`) or a folder for both kinds. Limits are by default as the model was
    trained to write, else 10 turns of 2048 tokens. `guided` opens turns for models too small to follow the protocol, by
    default for those of the catalogue that need it.
    """
    check_limits(limits)
    if isinstance(agent.searcher, NoSearcher):
        raise BadInput("a report needs something to search", hint='Agent("smollm2-135m", "notes-index")')
    asked = make_question(question, "report")
    place = report_place(Path(out)) if out is not None else None
    helped = needs_guide(agent.model) if guided is None else guided
    writer, allowed = choose_writer(agent.opened.notes, guided=helped, limits=limits)
    name = agent.new_id("report")
    playing = agent.opened.play(ReportTask(asked), episode_id=name, protocol=writer, limits=allowed, on_turn=on_turn)
    episode = agent.run(playing)
    refuse_all_failed([episode])
    written = bind_report(episode)
    files: list[Path] = []
    if written is not None and place is not None:
        name = str(agent.index.path) if agent.index else ""
        files = write_report(written, place, asked.id, agent.index, name)
    return WrittenReport(written, tuple(files), episode)


def choose_writer(notes: Notes, *, guided: bool, limits: Mapping[str, Any]) -> tuple[Writer, Limits]:
    """Protocol and limits: as given, else as the model was trained to write reports, which its notes say."""
    taught = any(writes_reports(name) for name in (notes.recipe, *notes.taught))
    usual = Limits(10, turn_tokens=2048, sequence_tokens=12288, tool_response_tokens=1024, answer_tokens=1024)
    if guided:
        usual = Limits(max_turns=2, turn_tokens=128, sequence_tokens=4096, tool_response_tokens=320)
    if taught and notes.limits:
        usual = notes.limits
    style = notes.style if taught and notes.style else "full"
    return find_dialect("report", "writer").open(style=style, guided=guided), structs.replace(usual, **limits)


# ---------------------------------------------------------------------------------------------------------------- files


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
    link = partial(_document_path, place=place, index=index)
    stem = _file_name(name)
    paths = {"md": place.folder / f"{stem}.md", "html": place.folder / f"{stem}.html"}
    wanted = paths if place.kind == "folder" else {place.kind: place.path}
    for kind, path in wanted.items():
        write_file(path, (to_markdown if kind == "md" else to_html)(report, link, index=index_name))
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
