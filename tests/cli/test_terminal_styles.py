"""On a terminal each part of a line has its own style: a faint label leaves an answer or a quotation as it is."""

from io import StringIO
from pathlib import Path

from msgspec import structs
from rich.console import Console

from quaere.cli.curriculum_view import render_item
from quaere.cli.episode_view import render_episode, render_evidence, render_report, render_support
from quaere.records import (
    Answer,
    Candidate,
    Episode,
    Evidence,
    Hit,
    Passage,
    Question,
    Search,
    SearchResult,
    SolveTask,
    Turn,
)
from quaere.runs.review import Item
from reported import SOURCES, make_report

SENTENCE = "Venn built Halm."
PASSAGE = Passage("halm.md#0", "halm.md", "Halm", SENTENCE, 0, len(SENTENCE))
TURNS = (
    Turn(0, "", Search(("Halm",)), "stop_string", results=(SearchResult("Halm", (Hit(PASSAGE, 7.25),)),)),
    Turn(1, "", Answer("Venn"), "stop_string"),
)
# What a terminal reads before a text of this style; all end with the same.
FAINT, BOLD, RED, GREEN, CYAN = (f"\x1b[{code}m" for code in ("2", "1", "1;31", "32", "36"))
ANSWER, MARKED, ITALIC = (f"\x1b[{code}m" for code in ("1;32", "1;7", "3"))
END = "\x1b[0m"


def styled(what):
    stream = StringIO()
    Console(
        file=stream, width=200, force_terminal=True, color_system="standard", no_color=False, highlight=False
    ).print(what)
    return stream.getvalue()


def make_episode(outcome):
    task = SolveTask(Question("q1", "Who built Halm?"))
    return Episode("a", task, "tool-call", "m", 0, (), TURNS, outcome, "answered")


def test_an_episode():
    shown = styled(render_episode(make_episode(Answer("Venn"))))
    assert f"{FAINT}Question: {END}{BOLD}Who built Halm?{END}" in shown
    assert f"{BOLD}Turn 1{END}{FAINT}  " in shown
    assert f"{CYAN}→ searches: {END}Halm\n" in shown
    assert f"{FAINT}1 passage for {END}{ITALIC}Halm{END}" in shown
    assert f"{FAINT}[1] {END}{BOLD}Halm{END}{FAINT}  halm.md 0-16, score 7.25{END}" in shown
    assert f"{GREEN}→ answers: {END}Venn\n" in shown
    assert f"{FAINT}Answer: {END}{ANSWER}Venn{END}" in shown


def test_the_proof_of_an_answer():
    quoted = styled(render_evidence(make_episode(Answer("Venn", span=SENTENCE))))
    assert quoted.startswith(f"{FAINT}Evidence: {END}{GREEN}{SENTENCE}{END}\n{FAINT}  found verbatim in [1] halm.md")
    found = styled(render_support(make_episode(Answer("Venn"))))
    assert found.startswith(f"{FAINT}Found in: {END}{GREEN}{SENTENCE}{END}\n{FAINT}  [1] halm.md")


def test_an_answer_out_of_a_passage_about_something_else_is_not_shown_as_found():
    other = SolveTask(Question("q1", "Which river floods Korrin?"))
    found = styled(render_support(structs.replace(make_episode(Answer("Venn")), task=other)))
    assert "Found in" not in found and GREEN not in found
    assert "without any word of the question: " in found and f"{SENTENCE}\n{FAINT}  [1] halm.md" in found


def test_a_candidate_with_its_span():
    evidence = Evidence("halm", 6, 22, SENTENCE)
    candidate = Candidate("a", 1, 0, "", "halm", 2, "Who built Halm?", "Venn", 2, 5, evidence=evidence)
    item = Item(candidate, evidence_state="verbatim")
    shown = styled(render_item(item, {}, f"Once. {SENTENCE} Twice.", "", Path("run")))
    assert f"{FAINT}answer: {END}{ANSWER}Venn{END}" in shown
    assert f"{FAINT}evidence: {END}halm 6-22, {GREEN}verbatim{END}" in shown
    assert f"{FAINT}Once. {END}{MARKED}»{SENTENCE}«{END}{FAINT} Twice.{END}" in shown


def test_a_report_whose_citations_lead_to_a_source_or_nowhere():
    shown = styled(render_report(make_report("Venn built it [1]. She paid [1, 5].", SOURCES[:1])))
    assert f"Venn built it {CYAN}[1]{END}. She paid {RED}[1, 5]{END}." in shown
    assert f"{CYAN}[1] {END}{BOLD}Halm bridge{END}{FAINT}  halm.md 0-" in shown
