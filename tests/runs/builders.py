"""Records to store: an episode and a candidate that read like real ones."""

from __future__ import annotations

import sqlite3

from quaere.records import (
    Answer,
    Candidate,
    Episode,
    Failure,
    Hit,
    Passage,
    Question,
    Search,
    SearchResult,
    Segment,
    SolveTask,
    Turn,
)


def build_episode(
    id: str = "ask-0", *, text: str = "The Halm bridge was built by Orsolya Venn.", **changes: object
) -> Episode:
    """A search, then an answer; `text` is the passage that was found."""
    passage = Passage(id="halm.md#0", doc_id="halm.md", title="The Halm bridge", text=text, start=0, end=len(text))
    turns = (
        Turn(
            index=0,
            text="<think>I should look it up.</think><tool_call>{...}</tool_call>",
            action=Search(queries=("Halm bridge",)),
            stop_reason="stop_string",
            results=(SearchResult(query="Halm bridge", hits=(Hit(passage=passage, score=7.25),)),),
            reply=f"[1] {text}",
            num_tokens=23,
            sample_s=0.8,
        ),
        Turn(
            index=1,
            text="<answer>Orsolya Venn</answer>",
            action=Answer(text="Orsolya Venn"),
            stop_reason="end_of_turn",
            failure=Failure(boundary="search", kind="timeout", message="the retriever did not answer within 10 s"),
            num_tokens=9,
        ),
    )
    values: dict[str, object] = {
        "id": id,
        "task": SolveTask(question=Question(id="q1", text="Who built the Halm bridge?", answers=("Orsolya Venn",))),
        "protocol": "toolcall",
        "model": "tiny",
        "seed": 7,
        "segments": (
            Segment(origin="prompt", token_ids=(1, 2, 3), logprobs=(), loss_mask=(False, False, False)),
            Segment(origin="model", token_ids=(4, 5), logprobs=(-0.5, -1.5), loss_mask=(True, True)),
        ),
        "turns": turns,
        "outcome": Answer(text="Orsolya Venn"),
        "end": "answered",
    }
    return Episode(**{**values, **changes})  # type: ignore[arg-type]


def build_candidate(id: str, step: int = 1, **changes: object) -> Candidate:
    values: dict[str, object] = {
        "id": id,
        "step": step,
        "iteration": 0,
        "episode_id": id,
        "document_id": "halm.md",
        "hops": 2,
        "question": "Who built the bridge at Halmgate?",
        "answer": "Orsolya Venn",
        "num_right": 2,
        "num_attempts": 5,
        "scores": {"format": 1.0},
    }
    return Candidate(**{**values, **changes})  # type: ignore[arg-type]


def drop_newest_columns(database: sqlite3.Connection) -> None:
    """Remove what schema 8 added, so that a database can be made what an older schema had."""
    for column in ("searches", "proof"):
        database.execute(f"ALTER TABLE candidates DROP COLUMN {column}")
