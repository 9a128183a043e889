"""What a person says of candidates: stored apart, never lost, honoured, and never taken for what the run decided."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from builders import build_candidate, build_episode, drop_newest_columns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.errors import BadInput
from quaere.records import Candidate, Evidence, Support
from quaere.runs import Run, Verdict, give_verdicts, judge
from quaere.runs.review import is_learned

DOCUMENTS = {"halm.md": "The Halm bridge was built by Orsolya Venn in 1702."}
SPAN = Evidence("halm.md", 16, 41, "was built by Orsolya Venn")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with four candidates, closed: kept, kept, dropped, and dropped because nothing was written."""
    with Run.create(tmp_path / "r", "evolve") as run:
        run.add_candidates(
            [
                build_candidate("a", 1),
                build_candidate("b", 2),
                build_candidate("c", 2, reason="never solved", num_right=0),
                build_candidate("d", 2, reason="invalid", question="", answer=""),
            ]
        )
    return run


def ids(candidates: list[Candidate]) -> list[str]:
    return [candidate.id for candidate in candidates]


def give(run: Run, **kinds: str) -> None:
    with Run.open(run.path) as opened:
        known = {candidate.id: candidate for candidate in opened.candidates()}
    give_verdicts(run.path, [judge(known[id], kind) for id, kind in kinds.items()])  # type: ignore[arg-type]


def downgrade(path: Path) -> None:
    """Make the database what the earlier schema had."""
    with closing(sqlite3.connect(path / "run.db")) as database, database:
        for column in ("span", "evidence", "support", "refusals", "cluster", "question_type", "aliases"):
            database.execute(f"ALTER TABLE candidates DROP COLUMN {column}")
        database.execute("ALTER TABLE runs DROP COLUMN ended")
        drop_newest_columns(database)
        database.execute("DROP TABLE verdicts")
        database.execute("DROP TABLE added")
        database.execute("DROP TABLE token_traces")
        database.execute("PRAGMA user_version = 2")


# ------------------------------------------------------------------------------------------------------------ honoured


def test_a_curriculum_is_the_kept_less_the_rejected_and_with_the_accepted(run: Run) -> None:
    with Run.open(run.path) as opened:
        assert ids(opened.curriculum()) == ["a", "b"]
        before = opened.candidates()
        give(run, a="rejected", b="flagged", c="accepted")
        assert ids(opened.curriculum()) == ["b", "c"]
        assert ids(opened.curriculum(iteration=1)) == []
        assert opened.candidates() == before  # what the run decided stays what it was
        give_verdicts(run.path, [], clear=["a", "c", "nobody"])
        assert ids(opened.curriculum()) == ["a", "b"]


def test_what_has_no_question_cannot_be_accepted(run: Run) -> None:
    with pytest.raises(BadInput, match="d cannot be accepted: it has no question"):
        give(run, a="accepted", d="accepted")
    empty = build_candidate("d", 2, reason="invalid", question="", answer="")
    give_verdicts(run.path, [Verdict("d", "accepted", "", "", "")])  # as if by another program
    assert not is_learned(empty, Verdict("d", "accepted", "", "", ""))
    with Run.open(run.path) as opened:
        assert ids(opened.curriculum()) == ["a", "b"]


@given(
    st.sampled_from(["", "never solved", "refused"]),
    st.sampled_from([None, "accepted", "rejected", "flagged"]),
    st.booleans(),
)
def test_only_a_clear_word_on_these_very_words_changes_anything(reason: str, kind: str | None, same: bool) -> None:
    candidate = build_candidate("a", reason=reason)
    judged = candidate if same else build_candidate("a", reason=reason, question="Who paid for it?")
    verdict = judge(judged, kind) if kind else None  # type: ignore[arg-type]
    decided = {"accepted": True, "rejected": False}.get(kind or "", candidate.kept)
    assert is_learned(candidate, verdict) == (decided if same else candidate.kept)


# ------------------------------------------------------------------------------------------------------------ not lost


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 3))
def test_cutting_a_run_back_keeps_its_verdicts(tmp_path: Path, step: int) -> None:
    with Run.start(tmp_path, "evolve") as run:
        candidates = [build_candidate(f"c{n}", n) for n in range(4)]
        run.add_candidates(candidates)
        give_verdicts(run.path, [judge(candidate, "rejected", note="vague") for candidate in candidates])
        given_before = run.verdicts()
        run.truncate_after(step)
        assert run.verdicts() == given_before
        run.add_candidates(candidates[step + 1 :])  # written again, word for word
        assert run.curriculum() == []


def test_a_verdict_does_not_pass_to_another_question_of_the_same_id(run: Run) -> None:
    give(run, b="rejected", c="accepted")
    with Run.open(run.path, write=True) as opened:
        opened.truncate_after(1)
        opened.add_candidates(
            [
                build_candidate("b", 2, question="Who paid for the bridge?"),
                build_candidate("c", 2, reason="never solved", evidence=SPAN),
            ]
        )
        assert ids(opened.curriculum()) == ["a", "b"]


def test_verdicts_are_given_beside_the_writer(run: Run) -> None:
    """One process writes the run without a pause while another gives verdicts, each waiting for the other."""
    problems = []

    def people() -> None:
        try:
            for number in range(40):
                give_verdicts(run.path, [judge(build_candidate(f"w{number}"), "flagged", note=str(number))])
        except BadInput as error:
            problems.append(error)

    with Run.open(run.path, write=True) as opened:
        thread = threading.Thread(target=people)
        thread.start()
        number = 0
        while thread.is_alive():
            opened.add_candidates([build_candidate(f"w{number}", 3)])
            number += 1
        thread.join()
        assert not problems
        assert len(opened.verdicts()) == 40
    with Run.open(run.path) as reader:
        assert len(reader.candidates()) == 4 + number


def test_another_process_is_seen_by_a_run_that_is_open(run: Run) -> None:
    script = (
        "import sys; from pathlib import Path; from quaere.runs import Run, give_verdicts, judge\n"
        "path = Path(sys.argv[1])\n"
        "with Run.open(path) as run: give_verdicts(path, [judge(run.candidates()[0], 'rejected', 'no')])\n"
    )
    with Run.open(run.path, write=True) as opened:
        assert ids(opened.curriculum()) == ["a", "b"]
        subprocess.run([sys.executable, "-c", script, str(run.path)], check=True)
        assert ids(opened.curriculum()) == ["b"]
        opened.log_metrics(3, {"still": 1.0})


def test_verdicts_are_given_together_or_not_at_all(run: Run) -> None:
    a, b = build_candidate("a"), build_candidate("b")
    give(run, a="flagged")
    with pytest.raises(BadInput, match="cannot write verdicts"):
        give_verdicts(run.path, [judge(a, "rejected"), judge(b, "rejected", note="\ud800")], clear=["a"])
    with Run.open(run.path) as opened:
        assert {id: verdict.kind for id, verdict in opened.verdicts().items()} == {"a": "flagged"}


# ----------------------------------------------------------------------------------------------------- earlier schemas


def test_a_run_of_the_earlier_schema_opens_as_it_is(run: Run) -> None:
    with Run.open(run.path) as opened:
        before = opened.candidates()
    downgrade(run.path)
    with Run.open(run.path) as opened:
        assert opened.candidates() == before
        assert opened.verdicts() == {}
        assert ids(opened.curriculum()) == ["a", "b"]
        give(run, a="rejected")  # brings it up to date under the reader
        assert ids(opened.curriculum()) == ["b"]


def test_writing_to_a_run_of_the_earlier_schema_brings_it_up_to_date(run: Run) -> None:
    downgrade(run.path)
    later = build_candidate(
        "e", 3, span="x", evidence=SPAN, support=Support(0.8, 0.2, 5), refusals=("echo",), cluster=3
    )
    with Run.open(run.path, write=True) as opened:
        opened.add_episode(build_episode("e"), step=3)
        opened.add_candidates([later])
    with Run.open(run.path, write=True) as opened:
        assert opened.candidates()[-1] == later
        assert ids(opened.candidates()) == ["a", "b", "c", "d", "e"]
        assert opened.candidates()[0] == build_candidate("a", 1)


# ------------------------------------------------------------------------------------------------------------ evidence


def test_evidence_is_checked_before_it_is_stored(tmp_path: Path) -> None:
    good = build_candidate("a", evidence=SPAN)
    moved = build_candidate("b", evidence=Evidence("halm.md", 17, 42, SPAN.text))
    elsewhere = build_candidate("b", evidence=Evidence("oss.md", 16, 41, SPAN.text))

    def read(doc_id: str) -> str:
        if doc_id not in DOCUMENTS:
            raise BadInput(f"there is no document {doc_id!r} in the index")
        return DOCUMENTS[doc_id]

    with Run.create(tmp_path / "r", "evolve") as run:
        for wrong, said in ((moved, "characters 17 to 42"), (elsewhere, "there is no document 'oss.md'")):
            with pytest.raises(BadInput, match=f"candidate b cannot be stored: {said}"):
                run.add_candidates([good, wrong], read_document=read)
        assert run.candidates() == []
        run.add_candidates([good, build_candidate("b")], read_document=read)
        assert run.candidates()[0].evidence == SPAN


@pytest.mark.parametrize("evidence", [Evidence("halm.md", 16, 40, SPAN.text), Evidence("halm.md", -9, 16, SPAN.text)])
def test_offsets_that_cannot_be_are_refused_without_the_document(tmp_path: Path, evidence: Evidence) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        with pytest.raises(BadInput, match="evidence of 25 characters does not fit"):
            run.add_candidates([build_candidate("a", evidence=evidence)])
        assert run.candidates() == []
