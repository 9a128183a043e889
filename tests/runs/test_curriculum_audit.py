"""The curriculum as a person audits it: filters, evidence checked when read, files out and back in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

import pytest
from builders import build_candidate
from hypothesis import given
from hypothesis import strategies as st

from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import BadInput
from quaere.records import DropReason, Evidence, Support
from quaere.rollout.question_files import read_questions
from quaere.runs import Run, give_verdicts
from quaere.runs.item_files import (
    COLUMNS,
    SCORE,
    QuestionRow,
    VerdictRow,
    read_question_rows,
    read_verdict_rows,
    write_items,
    write_verl,
)
from quaere.runs.review import Item, ItemFilter, VerdictKind, check_item, judge, measures, read_items

DOCUMENT = "The Halm bridge was built by Orsolya Venn in 1702."
SPAN = Evidence("halm.md", 16, 41, "was built by Orsolya Venn")


def build_item(id: str, kind: VerdictKind | None = None, note: str = "", **changes: object) -> Item:
    candidate = build_candidate(id, **changes)
    state: Any = "unchecked" if candidate.evidence else ""
    return Item(candidate, verdict=judge(candidate, kind, note) if kind else None, evidence_state=state)


# ------------------------------------------------------------------------------------------------------------- filters

numbers = st.integers(0, 4)
chances = st.floats(0, 1) | st.just(math.nan)
items = st.builds(
    lambda n, reason, kind, hops, iteration, right, support, scores, question: build_item(
        f"c{n}",
        kind,
        reason=reason,
        hops=hops,
        iteration=iteration,
        num_right=min(right, 4),
        num_attempts=4 if right < 5 else 0,
        support=support,
        scores=scores,
        question=question,
    ),
    numbers,
    st.sampled_from(get_args(DropReason)),
    st.none() | st.sampled_from(get_args(VerdictKind)),
    numbers,
    numbers,
    st.integers(0, 5),
    st.none() | st.builds(Support, chances, chances),
    st.dictionaries(st.sampled_from(["format", "brevity"]), chances),
    st.sampled_from(["Who built it?", "WHO paid", "Straße?"]),
)
bounds = st.dictionaries(
    st.sampled_from(["votes", "rate", "p+", "p-", "value", "format", "brevity"]),
    st.sampled_from([0, 0.5, 1]),
    max_size=2,
)
wishes: dict[str, st.SearchStrategy[Any]] = {
    "kept": st.booleans(),
    "learned": st.booleans(),
    "reason": st.sampled_from(get_args(DropReason)),
    "verdict": st.sampled_from([*get_args(VerdictKind), "none"]),
    "hops": numbers,
    "searches": numbers,
    "iteration": numbers,
    "text": st.sampled_from(["who", "STRASSE", "venn", "nowhere"]),
    "least": bounds,
    "most": bounds,
}
# Mostly one or two wishes at a time: with all of them together, hardly anything passes.
filters = st.lists(st.sampled_from(sorted(wishes)), max_size=3, unique=True).flatmap(
    lambda names: st.builds(ItemFilter, **{name: wishes[name] for name in names})
)


def breaks(item: Item, wanted: ItemFilter) -> list[str]:
    """In what way an item is not what the filter asks for, told the long way round."""
    candidate, wrong = item.candidate, []
    if wanted.kept is not None and (candidate.reason == "") != wanted.kept:
        wrong.append("kept")
    if wanted.learned is not None and item.learned != wanted.learned:
        wrong.append("learned")
    for name in ("reason", "hops", "iteration"):
        if getattr(wanted, name) is not None and getattr(candidate, name) != getattr(wanted, name):
            wrong.append(name)
    if wanted.searches is not None and wanted.searches != (1 if candidate.hops == 1 else max(candidate.hops - 1, 0)):
        wrong.append("searches")
    if wanted.verdict == "none" and item.verdict is not None:
        wrong.append("verdict")
    if wanted.verdict not in (None, "none") and (item.verdict is None or item.verdict.kind != wanted.verdict):
        wrong.append("verdict")
    everything = "\0".join([candidate.question, candidate.answer, candidate.span]).casefold()
    if wanted.text.casefold() not in everything:
        wrong.append("text")
    values = {**candidate.scores}
    if candidate.num_attempts:
        values |= {"votes": candidate.num_right, "rate": candidate.num_right / candidate.num_attempts}
    if candidate.support:
        with_span, without = candidate.support.chance_with, candidate.support.chance_without
        values |= {"p+": with_span, "p-": without, "value": with_span - without}
    wrong += [f"min {name}" for name, least in wanted.least.items() if not values.get(name, math.nan) >= least]
    wrong += [f"max {name}" for name, most in wanted.most.items() if not values.get(name, math.nan) <= most]
    return wrong


@given(st.lists(items, max_size=6), filters)
def test_a_filter_shows_what_it_says_and_all_of_it(listed: list[Item], wanted: ItemFilter) -> None:
    for item in listed:
        assert wanted.admits(item) == (breaks(item, wanted) == [])


@pytest.mark.parametrize(
    ("text", "is_shown"), [("", True), ("STRASSE", True), ("straße", True), ("venn", True), ("Vennstraße", False)]
)
def test_a_text_is_looked_for_in_question_and_answer_whatever_its_case(text: str, is_shown: bool) -> None:
    assert ItemFilter(text=text).admits(build_item("a", question="Which Straße leads to Halm?")) == is_shown


@pytest.mark.parametrize("value", [None, math.nan, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("bound", [0.0, 0.5, 1.0])
def test_bounds_include_their_ends_and_nothing_that_was_not_measured(value: float | None, bound: float) -> None:
    item = build_item("a", scores={} if value is None else {"brevity": value})
    is_number = value is not None and not math.isnan(value)
    assert ItemFilter(least={"brevity": bound}).admits(item) == (is_number and value >= bound)  # type: ignore[operator]
    assert ItemFilter(most={"brevity": bound}).admits(item) == (is_number and value <= bound)  # type: ignore[operator]


def test_a_bound_on_what_nobody_measured_is_refused() -> None:
    listed = [build_item("a", scores={"format": 1.0}, num_attempts=0), build_item("b")]
    ItemFilter(least={"votes": 1.0}, most={"format": 1.0}).check_measures(listed, "r")
    with pytest.raises(BadInput, match="no candidate of run r has a measure vots") as caught:
        ItemFilter(most={"vots": 1.0}).check_measures(listed, "r")
    assert "votes" in caught.value.hint
    assert measures(build_candidate("a", num_attempts=0, scores={})) == {}


def test_a_verdict_on_an_earlier_wording_is_shown_as_outdated(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        run.add_candidates([build_candidate("a", evidence=SPAN), build_candidate("b")])
        current = judge(build_candidate("b"), "accepted")
        earlier = judge(build_candidate("a", question="Who built the old bridge?"), "rejected")
    give_verdicts(run.path, [current, earlier])
    with Run.open(run.path) as run:
        first, second = read_items(run)
    assert (first.verdict, first.outdated, first.evidence_state) == (None, earlier, "unchecked")
    assert (second.verdict, second.outdated, second.evidence_state) == (current, None, "")


# ------------------------------------------------------------------------------------------------------------ evidence


def test_evidence_is_checked_when_it_is_read() -> None:
    item = build_item("a", evidence=SPAN)
    assert check_item(item, None).evidence_state == "unchecked"
    assert check_item(item, lambda _: DOCUMENT).evidence_state == "verbatim"
    for text in (DOCUMENT.replace("Venn", "Vänn"), " " + DOCUMENT, DOCUMENT[:40], ""):
        found = check_item(item, lambda _, text=text: text)  # type: ignore[misc]
        assert found.evidence_state == "mismatch" and "'halm.md'" in found.problem
    assert check_item(build_item("b"), lambda _: DOCUMENT).evidence_state == ""

    def gone(doc_id: str) -> str:
        raise BadInput(f"there is no document {doc_id!r} in the index")

    assert check_item(item, gone).problem == "there is no document 'halm.md' in the index"


# --------------------------------------------------------------------------------------------------------------- files

WILD = "[red]Wer baute\n\x1b[2J \u202e die Brücke, “Halm”?"
LISTED = [
    build_item("a", "rejected", "two,\nbridges", question=WILD, evidence=SPAN, support=Support(0.8, 0.25, 4)),
    build_item("b", reason="refused", refusals=("echo", "short"), scores={"format": 0.5, "odd": math.nan}),
    build_item("c", "accepted", reason="never solved", num_right=0, cluster=3, question_type="causal"),
    build_item("d", reason="invalid", question="", answer="", num_attempts=0, scores={}),
]


def read_file(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(params=["jsonl", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    return tmp_path / f"items.{request.param}"


def test_a_file_holds_every_column_of_every_item(file: Path) -> None:
    write_items(file, LISTED, "evolve-1")
    rows = read_file(file)
    assert [list(row) for row in rows] == [[*COLUMNS, f"{SCORE}format", f"{SCORE}odd"]] * 4
    first, second, third, last = rows
    assert first["question"] == WILD and first["answers"] == ["Orsolya Venn"]
    assert first["evidence"] == [{"doc_id": "halm.md", "start": 16, "end": 41, "text": SPAN.text}]
    assert (first["p_with"], first["p_without"], first["num_samples"]) == (0.8, 0.25, 4)
    assert first["value"] == pytest.approx(0.55)
    assert (first["kept"], first["learned"], first["verdict"], first["note"]) == (
        True,
        False,
        "rejected",
        "two,\nbridges",
    )
    assert second["refusals"] == ["echo", "short"] and second["p_with"] is None and second["verdict"] == ""
    assert second["score/odd"] is None or math.isnan(second["score/odd"])
    assert (third["cluster"], third["question_type"], third["learned"]) == (3, "causal", True)
    assert last["answers"] == [] and last["score/format"] is None and last["run"] == "evolve-1"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_verdicts_come_back_from_a_file(file: Path) -> None:
    write_items(file, LISTED, "evolve-1")
    first, *_, last = read_verdict_rows(file)
    assert first == VerdictRow("a", "rejected", "two,\nbridges", WILD, "Orsolya Venn")
    assert last == VerdictRow("d", "", "", "", "")


def test_datasets_loads_the_files(file: Path) -> None:
    datasets = pytest.importorskip("datasets")
    write_items(file, LISTED, "evolve-1")
    kind = {".jsonl": "json", ".parquet": "parquet"}[file.suffix]
    cache = str(file.parent / "cache")
    loaded = datasets.load_dataset(kind, data_files=str(file), cache_dir=cache)["train"]
    assert loaded["id"][:] == ["a", "b", "c", "d"]
    assert loaded[0]["evidence"][0]["text"] == SPAN.text
    assert loaded[0]["question"] == WILD


def test_what_is_learned_is_a_question_file_too(tmp_path: Path) -> None:
    write_items(tmp_path / "q.jsonl", [item for item in LISTED if item.learned], "evolve-1")
    (question,) = read_questions(tmp_path / "q.jsonl")
    assert (question.id, question.answers, question.hops) == ("c", ("Orsolya Venn",), 2)
    assert (question.facts, question.searches) == (1, 1)  # in Dr. Zero two hops are one fact


def test_rows_are_counted_in_facts_whatever_they_count_in() -> None:
    assert QuestionRow(question="Who?", hops=3).num_facts == 3  # a question file
    assert QuestionRow(question="Who?", hops=3, learned=True).num_facts == 2  # an export, which has Dr. Zero's hops
    assert QuestionRow(question="Who?", hops=3, facts=1, learned=True).num_facts == 1
    assert QuestionRow(question="Who?").num_facts == 0


def test_no_items_are_a_file_without_rows(file: Path) -> None:
    write_items(file, [], "evolve-1")
    assert read_file(file) == []
    assert read_verdict_rows(file) == []


def test_verl_reads_prompts_and_ground_truth(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    protocol = ToolCallSolver(style="brief")
    write_verl(tmp_path / "train.parquet", [LISTED[0].candidate, LISTED[2].candidate], protocol, "evolve-1")
    rows = read_file(tmp_path / "train.parquet")
    assert [list(row) for row in rows] == [["data_source", "prompt", "ability", "reward_model", "extra_info"]] * 2
    first, second = rows
    system, user = first["prompt"]
    assert system["role"] == "system" and "search" in system["content"]
    assert user == {"role": "user", "content": f"Question:\n{WILD}"}
    assert second["reward_model"] == {"style": "rule", "ground_truth": {"target": ["Orsolya Venn"]}}
    assert [row["extra_info"]["index"] for row in rows] == [0, 1]
    assert first["extra_info"]["span"] == SPAN.text and first["extra_info"]["id"] == "a"
    with pytest.raises(BadInput, match="verl reads Parquet"):
        write_verl(tmp_path / "train.jsonl", [], protocol, "evolve-1")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "a"}', "line 2: .*verdict"),
        ('{"id": 3, "verdict": ""}', "line 2: .*id"),
        ("not json", "line 2"),
        pytest.param('{"id": "a", "more": ' + "[" * 100_000, "line 2: the JSON is nested too deeply", id="deep"),
        ('{"id": "z", "verdict": null}', "the id z occurs twice"),
    ],
)
def test_a_broken_file_is_named_by_its_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "v.jsonl").write_text('{"id": "z", "verdict": "flagged"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        read_verdict_rows(tmp_path / "v.jsonl")


def test_a_file_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "v.jsonl").write_text('{"id": "z", "verdict": "flagged"}\n', encoding="utf-8-sig")
    assert [row.id for row in read_verdict_rows(tmp_path / "v.jsonl")] == ["z"]


def test_a_parquet_file_whose_text_is_not_utf_8_is_refused_in_one_line(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ends = arrow.py_buffer((0).to_bytes(4, "little") + (2).to_bytes(4, "little"))
    text = arrow.Array.from_buffers(arrow.string(), 1, [None, ends, arrow.py_buffer(b"\xff\xfe")])
    parquet.write_table(arrow.table({"question": text, "answer": ["Venn"]}), tmp_path / "q.parquet")
    for read in (read_question_rows, read_questions):
        with pytest.raises(BadInput, match=r"q\.parquet is not a valid Parquet file: .*utf-8"):
            read(tmp_path / "q.parquet")


def test_files_that_are_not_what_their_name_says(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"neither \.jsonl nor \.parquet"):
        write_items(tmp_path / "items.csv", LISTED, "evolve-1")
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_verdict_rows(tmp_path / "items.jsonl")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot write .*: File exists"):
        write_items(tmp_path / "file" / "items.jsonl", LISTED, "evolve-1")
    arrow = pytest.importorskip("pyarrow")
    (tmp_path / "items.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(BadInput, match="is not a valid Parquet file"):
        read_verdict_rows(tmp_path / "items.parquet")
    rows = arrow.table({"id": ["a", None], "verdict": ["flagged", "rejected"]})
    pytest.importorskip("pyarrow.parquet").write_table(rows, tmp_path / "items.parquet")
    with pytest.raises(BadInput, match=r"items\.parquet, row 2: .*id"):
        read_verdict_rows(tmp_path / "items.parquet")
