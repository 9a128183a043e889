"""Questions people add to a run: stored apart, never lost, part of the curriculum unless rejected."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import build_candidate, drop_newest_columns

from quaere.errors import BadInput
from quaere.records import Candidate, Evidence
from quaere.runs import Added, Run, add_questions, give_verdicts, judge, make_added
from quaere.runs.review import ItemFilter, read_items

SPAN = Evidence("halm.md", 16, 41, "was built by Orsolya Venn")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run, closed, with a candidate that was kept in each of two iterations and one that was dropped."""
    with Run.create(tmp_path / "r", "evolve") as run:
        run.add_candidates(
            [
                build_candidate("a", 1),
                build_candidate("b", 2, reason="never solved"),
                build_candidate("c", 5, iteration=1),
            ]
        )
    return run


def named(name: str, **changes: Any) -> Added:
    return make_added(f"Who built {name}?", "Venn", **changes)


def questions(candidates: list[Candidate]) -> list[str]:
    return [candidate.question if candidate.added else candidate.id for candidate in candidates]


def test_what_is_added_comes_back_as_it_was(run: Run) -> None:
    given = [named("Oss", facts=2, document_id="oss.md", span="Venn built it", origin="mine.jsonl, row 1")]
    given.append(named("Halm", iteration=1, evidence=SPAN))
    add_questions(run.path, given[:1])
    add_questions(run.path, given[1:])
    with Run.open(run.path) as opened:
        assert opened.added() == given
        assert [len(opened.candidates()), len(opened.candidates(kept=True))] == [3, 2]  # the run wrote none of them
        assert [item.candidate.gold_span for item in opened.added()] == ["Venn built it", SPAN.text]


def test_a_curriculum_has_what_was_added_for_it_or_for_all(run: Run) -> None:
    every, later = named("Oss"), named("Halm", iteration=1)
    add_questions(run.path, [every, later])
    with Run.open(run.path) as opened:
        assert questions(opened.curriculum(0)) == ["a", "Who built Oss?"]
        assert questions(opened.curriculum(1)) == ["c", "Who built Oss?", "Who built Halm?"]
        assert questions(opened.curriculum(7)) == ["Who built Oss?"]
        assert questions(opened.curriculum()) == ["a", "c", "Who built Oss?", "Who built Halm?"]
        give_verdicts(run.path, [judge(every.candidate, "rejected"), judge(later.candidate, "flagged")])
        assert questions(opened.curriculum(1)) == ["c", "Who built Halm?"]


def test_filters_tell_the_added_from_the_kept(run: Run) -> None:
    add_questions(run.path, [named("Oss"), named("Halm", iteration=1)])
    with Run.open(run.path) as opened:
        items = read_items(opened)

    def found(**wishes: Any) -> list[str]:
        return questions([item.candidate for item in items if ItemFilter(**wishes).admits(item)])

    assert [item.state for item in items] == ["kept", "never solved", "kept", "added", "added"]
    assert found(kept=True) == ["a", "c"] and found(kept=False) == ["b"]
    assert found(added=True) == ["Who built Oss?", "Who built Halm?"] and found(added=False) == ["a", "b", "c"]
    assert found(iteration=0) == ["a", "b", "Who built Oss?"]
    assert found(iteration=1, added=True) == ["Who built Oss?", "Who built Halm?"]


def test_questions_are_added_together_or_not_at_all(run: Run) -> None:
    add_questions(run.path, [named("Oss")])
    for wrong in (
        [named("Keld"), named("Oss", iteration=1)],
        [named("Keld"), named("Keld", facts=3)],
        [named("Keld"), make_added(" ", "Venn")],
        [named("Keld"), make_added("Who built it?", "")],
        [named("Keld"), named("Halm", origin="\ud800")],
        [named("Keld"), named("Halm", facts=1 << 70)],
    ):
        with pytest.raises(BadInput):
            add_questions(run.path, wrong)
        with Run.open(run.path) as opened:
            assert questions(opened.curriculum(0)) == ["a", "Who built Oss?"]


def test_cutting_a_run_back_keeps_what_was_added(run: Run) -> None:
    with Run.open(run.path, write=True) as opened:
        add_questions(run.path, [named("Oss")])
        opened.truncate_after(0)
        assert questions(opened.curriculum()) == ["Who built Oss?"]


def test_questions_are_added_beside_the_writer(run: Run) -> None:
    problems = []

    def people() -> None:
        try:
            for number in range(20):
                add_questions(run.path, [named(str(number))])
        except BadInput as error:
            problems.append(error)

    with Run.open(run.path, write=True) as opened:
        thread = threading.Thread(target=people)
        thread.start()
        number = 0
        while thread.is_alive():
            opened.add_candidates([build_candidate(f"w{number}", 6)])
            number += 1
        thread.join()
        assert not problems
        assert len(opened.added()) == 20
        assert len(opened.candidates()) == 3 + number


def test_a_run_of_the_schema_with_verdicts_alone_has_none_until_some_are_added(run: Run) -> None:
    with closing(sqlite3.connect(run.path / "run.db")) as database, database:
        database.execute("DROP TABLE added")
        database.execute("DROP TABLE token_traces")
        database.execute("ALTER TABLE candidates DROP COLUMN aliases")
        database.execute("ALTER TABLE runs DROP COLUMN ended")
        drop_newest_columns(database)
        database.execute("PRAGMA user_version = 3")
    with Run.open(run.path) as opened:
        assert opened.added() == []
        assert questions(opened.curriculum(0)) == ["a"]
        add_questions(run.path, [named("Oss")])  # brings it up to date under the reader
        assert questions(opened.curriculum(0)) == ["a", "Who built Oss?"]


def test_a_run_from_before_there_were_several_answers_accepts_one_each(run: Run) -> None:
    add_questions(run.path, [named("Oss")])
    with closing(sqlite3.connect(run.path / "run.db")) as database, database:
        for table in ("candidates", "added"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN aliases")
        database.execute("DROP TABLE token_traces")
        database.execute("ALTER TABLE runs DROP COLUMN ended")
        drop_newest_columns(database)
        database.execute("PRAGMA user_version = 4")
    with Run.open(run.path) as opened:
        assert [item.aliases for item in opened.curriculum(0)] == [(), ()]
        add_questions(run.path, [make_added("When?", "4 May 1702", aliases=("1702",))])
        assert [item.answers for item in opened.curriculum(0)][-1] == ("4 May 1702", "1702")
