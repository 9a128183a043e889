"""`quaere grade`, in this process: the judge's accuracy first, then scores; comparisons, benches, refusals."""

import json
import re

import msgspec
import pytest

from loopback import serve_chat
from quaere.cli.main import main
from quaere.evaluation.reports.citations import Cited, check_support
from quaere.records import Answer, Episode, Evidence, Hit, Question, ReportTask, Search, SearchResult, Turn
from quaere.runs import Run
from quaere.worlds.open_questions import KnownFact, ReportLine
from reported import GOOD, HALM, OSS, QUERIES, SOURCES, make_report, write_bench

WORSE = GOOD.replace("in 1702 [1]", "in 1709 [1]").replace("[3]", "[8]")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("grade")
    write_reports(root / "good.jsonl", [make_report(GOOD, id=f"q{number}") for number in range(4)])
    write_reports(root / "worse.jsonl", [make_report(WORSE, id=f"q{number}") for number in range(3)])
    prompts = [make_report(GOOD, question=query["prompt"], id=f"x{query['id']}") for query in QUERIES]
    write_reports(root / "bench.jsonl", [*prompts, make_report(GOOD, id="elsewhere")])
    write_bench(root / "bench")
    return root


def write_reports(path, reports):
    path.write_bytes(b"\n".join(msgspec.json.encode(report) for report in reports))


def grade(*argv, probes=4):
    return main(["grade", "--probes", str(probes), *map(str, argv)])


def in_json(capsys, *argv):
    capsys.readouterr()
    assert grade(*argv, "--json") == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *argv):
    capsys.readouterr()
    assert grade(*argv) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "done" not in line and "judge:" not in line]
    assert lines[0].startswith("quaere: ") and len(lines) <= 2
    return " ".join(lines)


def test_the_judge_comes_first_then_scores(place, tmp_path, capsys):
    out = tmp_path / "graded.json"
    assert grade(place / "good.jsonl", "--out", out) == 0
    shown = capsys.readouterr()
    told, scores = shown.out.index("judge accuracy of 'checks'"), shown.out.index("counted, 0-10 (proxies, no")
    assert told < shown.out.index("both (balanced; 50 is chance)") < scores < shown.out.index("valid %, of all citat")
    assert re.search(r"valid %, of all citations +100\.0 \[51\.0, 100\.0\]", shown.out)
    assert re.search(r"supported / unsupported / unknown +32 / 0 / 0", shown.out)
    assert shown.out.count("both (balanced; 50 is chance)") == 2 and "statements in free words, by hand" in shown.out
    assert "sentence negated" in shown.out and "no published figures" in shown.out
    assert "judge: checks" in shown.err
    (written,) = json.loads(out.read_text())
    assert next(iter(written)) == "agreement" and len(written["reports"][0]["checks"]) == 8


def test_a_single_report_has_no_interval(place, tmp_path, capsys):
    write_reports(tmp_path / "one.jsonl", [make_report(GOOD, id="q0")])
    assert grade(tmp_path / "one.jsonl") == 0
    graded = capsys.readouterr().out.partition("counted, 0-10 (proxies, no")[2]
    assert re.search(r"valid %, of all citations +100\.0 *\n", graded) and "[" not in graded


def test_two_files_are_compared(place, capsys):
    assert grade(place / "worse.jsonl", place / "good.jsonl") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "good - worse, over 3 shared questions:" in shown
    assert "valid citations +37.5 [-59.8, +81.7] (" in shown and "smallest difference" in shown
    found = in_json(capsys, place / "worse.jsonl", place / "good.jsonl", "--repeats", "2")
    assert found["differences"][0]["measures"]["valid citations"]["mean"] == 0.375
    assert found["results"][0]["score"]["measures"]["overall"]["variance"] == 0.0
    assert found["results"][0]["score"]["num_unresolved"] == 3
    assert found["agreement"]["citations"]["balanced"]["low"] > 0.5


def test_a_bench(place, tmp_path, capsys):
    found = in_json(capsys, place / "bench.jsonl", "--bench", place / "bench", "--language", "en")
    assert found["results"][0]["score"]["num_reports"] == 2
    assert grade(place / "bench.jsonl", "--bench", place / "bench") == 0
    shown = capsys.readouterr().out
    assert "32.00 -> 35.91" in shown and "not comparable with the above" in shown
    prompts = tmp_path / "prompts.jsonl"
    assert grade("--bench", place / "bench", "--language", "zh", "--questions-out", prompts) == 0
    assert json.loads(prompts.read_text()) == {"id": "2", "question": QUERIES[1]["prompt"]}
    capsys.readouterr()
    assert grade("--bench", place / "bench", "--limit", "1", "--questions-out", prompts) == 0
    assert json.loads(prompts.read_text())["id"] == "1" and "1 prompt written" in capsys.readouterr().out


def test_a_run_of_reports(place, tmp_path, capsys):
    hits = tuple(Hit(source.passage, 1.0) for source in SOURCES)
    turns = (
        Turn(0, "<search>Halm</search>", Search(("Halm",)), "stop_string", results=(SearchResult("Halm", hits),)),
        Turn(1, f"<answer>{GOOD}</answer>", Answer(GOOD), "stop_string"),
    )
    with Run.start(tmp_path, "report", {}) as run:
        for name, outcome, end in (("a", Answer(GOOD), "answered"), ("b", None, "turn_limit")):
            task = ReportTask(Question(name, "What is known of the Halm bridge?"))
            run.add_episode(Episode(task.id, task, "report-writer", "m", 0, (), turns, outcome, end))
    found = in_json(capsys, run.info.id, "--runs", tmp_path)["results"][0]
    assert (found["name"], found["num_unfinished"]) == (run.info.id, 1)
    assert found["score"]["measures"]["valid citations"]["value"]["mean"] == 0.5
    assert found["score"]["verdicts"]["supported"] == 8
    with Run.start(tmp_path, "ask", {}) as other:
        pass
    assert "contains no report: it is a run of kind ask" in refused(capsys, other.info.id, "--runs", tmp_path)


def write_facts(path, question="What is known of the Halm bridge and the Oss?"):
    rows = [
        ("halm.md", "Halm bridge", HALM, "Orsolya Venn built the Halm bridge in 1702.", ("1702",)),
        ("oss.md", "The Oss", OSS, "The Oss rises in the Korrin hills and runs for 86 leagues.", ("Korrin hills",)),
        ("oss.md", "The Oss", OSS, "Boats from Tallow reach its lower course.", ("Tallow",)),
    ]
    facts = tuple(
        KnownFact(doc, title, "r", said[0], proof, span(doc, text, proof), (title,), said)
        for doc, title, text, proof, said in rows
    )
    gaps = ("the colour of the Halm bridge",)
    line = ReportLine("q0", question, "comparison", ("halm.md", "oss.md"), facts, gaps, "evaluation")
    path.write_bytes(msgspec.json.encode(line))
    return path


def span(doc, text, proof):
    return Evidence(doc, text.index(proof), text.index(proof) + len(proof), proof)


def test_known_facts_are_looked_for(place, tmp_path, capsys):
    facts, out = write_facts(tmp_path / "facts.jsonl"), tmp_path / "graded.json"
    assert grade(place / "worse.jsonl", place / "good.jsonl", "--facts", facts, "--out", out) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "facts told % 33.3 [33.3, 33.3] 66.7 [66.7, 66.7]" in shown
    assert "gaps admitted % 0.0 [0.0, 0.0] 0.0 [0.0, 0.0] facts / gaps / reports 9 / 3 / 3 12 / 4 / 4" in shown
    assert "facts told +33.3 [-61.0, +80.5] (" in shown and "facts proven +33.3 [-61.0, +80.5] (" in shown
    assert (
        "good: checks agrees with the facts on 100.0 [51.0, 100.0] % of 16 citations that prove what is said" in shown
    )
    assert shown.index("valid %, of all") < shown.index("facts told %") < shown.index("good - worse")
    (_, written) = json.loads(out.read_text())
    assert written["settings"]["facts"] == str(facts) and written["truth"]["num_proving"] == 16
    assert written["reports"][0]["knowing"]["facts"][0]["proven_by"] == [0, 6]
    found = in_json(capsys, place / "worse.jsonl", place / "good.jsonl", "--facts", facts)
    assert found["results"][1]["score"]["measures"]["facts proven"]["value"]["mean"] == pytest.approx(2 / 3)
    assert found["results"][1]["truth"]["num_others"] == 0
    assert set(found["differences"][0]["smallest"]) >= {"facts told", "facts proven", "gaps admitted"}
    assert found["differences"][0]["smallest"]["facts told"] < 2.8


def test_facts_that_cannot_be_used_are_refused(place, tmp_path, capsys):
    good = place / "good.jsonl"
    assert "cannot be read" in refused(capsys, good, "--facts", tmp_path / "none.jsonl")
    assert "line 1: not a question with known facts" in refused(capsys, good, "--facts", good)
    other = write_facts(tmp_path / "other.jsonl", "What else?")
    assert "good has no report on a question of" in refused(capsys, good, "--facts", other)


# ----------------------------------------------------------------------------------------------------------- endpoint


def judge(body):
    """Judges by the rules, as an endpoint would answer; the models "chance" and "down" do not."""
    system, asked = body["messages"][0]["content"], body["messages"][-1]["content"]
    if body["model"] == "down":
        return None
    if "You plan" in system:
        return '[{"name": "dates", "text": "Says when.", "weight": 2}]'
    if "You check citations" in system:
        passage, _, statements = asked.removeprefix("Passage:\n").partition("\n\nStatements:\n")
        said = [line.partition(". ")[2] for line in statements.split("\n")]
        verdicts = [check_support(Cited(text, passage)).verdict for text in said]
        if body["model"] == "chance":
            verdicts = ["supported"] * len(said)
        return json.dumps([{"number": n, "verdict": verdict} for n, verdict in enumerate(verdicts, start=1)])
    report, _, criteria = asked.partition("\n\nDimension: ")
    parts = report.split("\n\n")
    value = 5 + 3 * ("[1]" in report) - 4 * (len(parts) != len(set(parts))) - ("not" in parts[-1])
    grade = 5 if body["model"] == "chance" else value
    return json.dumps([{"number": n, "grade": grade} for n in range(1, criteria.count("\n"))])


@pytest.fixture(scope="module")
def endpoint():
    with serve_chat(judge) as url:
        yield url


def test_an_endpoint_judges_by_the_criteria(place, endpoint, tmp_path, capsys):
    model = ("--judge", f"openai:judge@{endpoint}", "--probes", 2, "--max-rows", 8)
    found = in_json(capsys, place / "bench.jsonl", *model, "--bench", place / "bench", "--repeats", "2")
    measures = found["results"][0]["score"]["measures"]
    names = ["comprehensiveness", "insight", "instruction_following", "readability", "overall", "valid citations"]
    assert list(measures) == names
    assert measures["overall"]["value"]["mean"] == 8.0 and measures["overall"]["repeats"] == [8.0, 8.0]
    assert found["settings"]["specific"] == {}  # nobody asked for dimensions, so none are written
    assert found["settings"]["temperature"] == 0.7 and found["judge"] == f"openai:judge@{endpoint}"
    found = in_json(capsys, place / "good.jsonl", *model, "--specific", "1", "--limit", "1")
    assert "dates" in found["results"][0]["score"]["measures"]
    assert found["settings"]["temperature"] == 0.0
    made = found["settings"]["specific"]["What is known of the Halm bridge and the Oss?"]
    assert [one["name"] for one in made] == ["dates"]
    rows = tmp_path / "criteria.jsonl"
    rows.write_text('{"id": "q0", "dimensions": [{"name": "costs", "text": "What it cost."}]}\n')
    found = in_json(capsys, place / "good.jsonl", *model, "--criteria", rows, "--limit", "2")
    assert found["results"][0]["score"]["measures"]["question-specific"]["value"]["num"] == 1


def test_a_judge_no_better_than_chance_is_refused_unless_forced(place, endpoint, capsys):
    chance = ("--judge", f"openai:chance@{endpoint}", "--probes", 2, "--max-rows", 8, "--limit", 1)
    assert "no better than chance on corrupted reports (citations balanced 50.0 [50.0, 50.0] %" in refused(
        capsys, place / "good.jsonl", *chance
    )
    found = in_json(capsys, place / "good.jsonl", *chance, "--force")
    assert found["results"][0]["score"]["measures"]["overall"]["value"]["mean"] == 5.0
    assert grade(place / "good.jsonl", *chance, "--force") == 0
    out = capsys.readouterr().out
    assert "has not been shown to be better than chance at grades" in out
    head, row = (line.split() for line in out.splitlines() if line.startswith(("citation check, balanced", "planted")))
    assert head[-4:] == ["this", "judge", "the", "rules"] and row[2] == "50.0" and float(row[5]) > 80


def test_refusals(place, endpoint, tmp_path, capsys):
    good = place / "good.jsonl"
    assert "name a run of `quaere report` or a file" in refused(capsys)
    assert "no run nothing" in refused(capsys, "nothing", "--runs", tmp_path)
    assert "unknown judge 'gpt'" in refused(capsys, good, "--judge", "gpt")
    assert "the judge openai:down@" in refused(capsys, good, "--judge", f"openai:down@{endpoint}")
    assert "--repeats must be between 1 and 100" in refused(capsys, good, "--repeats", "0")
    assert "--probes must be between 1 and 100" in refused(capsys, good, "--probes", "101")
    assert "--max-rows must be at least 1" in refused(capsys, good, "--max-rows", "0")
    assert "--temperature must be between" in refused(capsys, good, "--temperature", "-1")
    assert "--criteria exclude each other" in refused(capsys, good, "--bench", place / "bench", "--criteria", good)
    assert "--language needs --bench" in refused(capsys, good, "--language", "en")
    assert "--specific needs a model as --judge" in refused(capsys, good, "--specific", "2")
    assert "--questions-out writes the prompts of --bench" in refused(capsys, "--questions-out", tmp_path / "x")
    assert "is not a DeepResearch Bench folder" in refused(capsys, good, "--bench", tmp_path)
    assert "has no report on a prompt of the bench" in refused(capsys, good, "--bench", place / "bench")
    assert "cannot be written" in refused(capsys, good, "--out", tmp_path)
    assert "line 1: not a report" in refused(capsys, place / "bench" / "query.jsonl")
    assert "cannot be read" in refused(capsys, good, "--criteria", tmp_path / "none.jsonl")
