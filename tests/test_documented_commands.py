"""Every `quaere` command that a document or script shows is one that the program takes today."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from documented import ROOT, check_command, faults, read_document
from quaere.cli.main import build_parser
from quaere.errors import BadInput
from quaere.warmup.imitation import WarmupManifest, write_manifest

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "Makefile"]
DOCUMENTS += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md"))
DOCUMENTS += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("src/quaere/recipes/**/*.md"))
WHOLE = "quaere evolve drzero --index INDEX --model MODEL"


# ------------------------------------------------------------------------------------------------------- the documents


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_shows_no_command_that_would_be_refused(name):
    stale = faults(name, (ROOT / name).read_text(encoding="utf-8"))
    assert not stale, "\n".join(stale)


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.endswith(".md")])
def test_no_command_is_passed_over(name):
    """By a plain look at the lines: each one that begins with the program's name is among those that are checked."""
    text = (ROOT / name).read_text(encoding="utf-8")
    begins = re.compile(r"    (\$ )?(\S+/)?quaere [a-z]")
    expected = {number for number, line in enumerate(text.splitlines(), start=1) if begins.match(line)}
    assert expected <= {shown.line for shown in read_document(name, text)}
    assert expected or "quaere index" not in text


def test_the_makefile_shows_commands():
    shown = read_document("Makefile", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert {"world", "warmup", "learn", "ask", "runs"} <= {word for line in shown for word in line.text.split()}


OWN = ["index docs manuals", "write docs", "form", "learn docs", "learn docs shuffled"]
HARDENED = ["form", "lessons docs", "harden-yield docs", "practice docs gated", "practice docs fresh"]
HARDENED += [f"propose docs {arm}" for arm in ("gated", "frozen", "shuffled", "grpo")]
JUDGES = "search-r1 gain loop oracle permuted pcar pcar-sharp pcar-permuted brier notes unpaid floor grounded".split()


@pytest.mark.parametrize(
    ("script", "choices", "num_evaluations"),
    [
        ("without_labels.sh", {"ARMS": "form own free direct labelled shuffled"}, 6),
        ("without_labels.sh", {"ARMS": "form direct eve unpaid strict second second-eve", "GIVEN": "p.jsonl.gz"}, 11),
        ("without_labels.sh", {"ARMS": "direct eve second", "GIVEN": "p.jsonl", "SHUFFLED": "1"}, 5),
        ("lanes.sh", {"RUNS": "1:eve 2:eve:9 3:direct:9:26", "GIVEN": "p.jsonl", "UNASKED": "", "APART": "0"}, 4),
        ("lanes.sh", {"RUNS": "1:direct 1:second", "GIVEN": "p.jsonl", "LANES": "1", "APART": "0"}, 4),
        ("small_start.sh", {}, 0),
        *((f"judges.sh {stage}", {}, 0) for stage in ("form", "cold docs", "cold docs shuffled")),
        *((f"judges.sh learn docs {arm}", {}, 0) for arm in JUDGES),
        *((f"own_documents.sh {stage}", {}, 0) for stage in OWN),
        *((f"abstention.sh {stage}", {"NEEDLESS": "-1"}, 0) for stage in ("form", "learn docs", "learn docs never")),
        ("abstention.sh ask docs-0 docs exam.jsonl", {"ATTEMPTS": "8"}, 1),
        *((f"proposer.sh {stage}", {}, 0) for stage in HARDENED),
        ("proposer.sh lessons docs", {"HARD": "again", "PASSED": "passed.jsonl"}, 0),
        ("proposer.sh harden-yield docs again", {"HARD": "again"}, 0),
        ("proposer.sh ask docs-on-gated-0 docs exam.jsonl", {}, 1),
        ("judges.sh ask oracle-0 docs exam.jsonl", {}, 1),
        ("judges.sh ask cold-0 docs exam.jsonl evalact", {}, 1),
        ("judges.sh ask cold-0 docs exam.jsonl evalact", {"HIDE": "1"}, 1),
    ],
)
@pytest.mark.skipif(not shutil.which("bash"), reason="the script is for bash")
def test_a_script_runs_no_command_that_would_be_refused(tmp_path, script, choices, num_evaluations):
    commands = run_script(tmp_path, script, choices)
    assert [words[0] for words in commands].count("eval") == num_evaluations
    for words in commands:
        check_command(words)


def run_script(tmp_path, script, choices, questions="{}\n"):
    """The commands of a script that is run with a `quaere` that only writes down how it was called."""
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    # The ends of words and of commands, in one write: a script may run several at once.
    note = f"""printf '%s\\037' "$@" "$(printf '\\036')" >> "{log}\""""
    for name, body in (("quaere", note), ("python", "echo 7")):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    given = {"MODEL": "smollm2-135m", "DEV": "dev", "TRAIN": "train", "OUT": str(tmp_path / "out")}
    given |= {"INDEX": "index", "QUESTIONS": "train.jsonl"}
    given |= {**choices, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "docs-practice.jsonl").write_text(questions, encoding="utf-8")
    (tmp_path / "out" / "docs-fresh.jsonl").write_text(questions, encoding="utf-8")
    name, *stage = script.split()
    command = ["bash", str(ROOT / "benchmarks" / name), *stage]
    subprocess.run(command, env=os.environ | given, cwd=tmp_path, check=True, timeout=60)
    return [line.split("\037")[:-1] for line in log.read_text(encoding="utf-8").split("\036\037")[:-1]]


@pytest.mark.skipif(not shutil.which("bash"), reason="the script is for bash")
def test_a_proposer_practises_on_a_sample_by_its_seed_in_a_folder_of_its_own(tmp_path):
    drawn = {}
    for seed in "012":
        (place := tmp_path / seed).mkdir()
        choices = {"SEED": seed, "NUM": "4", "START": "models/warm", "PYTHON": sys.executable}
        ((*words,),) = run_script(
            place, "proposer.sh practice docs fresh", choices, "".join(f"{n}\n" for n in range(10))
        )
        assert words[words.index("--out") + 1] == str(place / "out" / f"docs-on-fresh-4-from-warm-{seed}")
        drawn[seed] = (place / "out" / f"docs-fresh-{seed}-4.jsonl").read_text().split()
    assert [len(set(some)) for some in drawn.values()] == [4] * 3 and len(set(map(frozenset, drawn.values()))) == 3


@pytest.mark.skipif(not shutil.which("bash"), reason="the script is for bash")
def test_judges_asked_with_hidden_answers_have_files_of_their_own(tmp_path):
    places = set()
    for hide in ("", "1"):
        (place := tmp_path / f"hidden{hide}").mkdir()
        ((*words,),) = run_script(place, "judges.sh ask cold-0 docs exam.jsonl evalact", {"HIDE": hide})
        assert ("--hide-answers" in words) == bool(hide)
        places |= {os.path.basename(words[words.index(option) + 1]) for option in ("--runs", "--out")}
    assert len(places) == 4  # else the searches of both would be scored as one evaluation


@pytest.mark.parametrize(
    ("script", "also", "abstention", "says"),
    [
        ("judges.sh", ("evalrar", "evalact"), 0.0, ""),
        ("judges.sh", (), 0.15, "it knows one dialect"),
        ("abstention.sh", (), 0.15, ""),
        ("abstention.sh", ("evalrar", "evalact"), 0.0, "it was not taught to abstain"),
    ],
)
@pytest.mark.skipif(not shutil.which("bash"), reason="the script is for bash")
def test_the_form_of_another_script_in_the_same_folder_is_not_taken(tmp_path, script, also, abstention, says):
    fields = dict.fromkeys(WarmupManifest.__struct_fields__) | {"also": also, "abstention": abstention}
    (tmp_path / "form-0").mkdir()
    write_manifest(WarmupManifest(**fields), tmp_path / "form-0")
    command = ["bash", str(ROOT / "benchmarks" / script), "echo", "went on"]
    done = subprocess.run(command, env=os.environ | {"OUT": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert (says in done.stderr, done.stdout, done.returncode) == ((True, "", 2) if says else (True, "went on\n", 0))


# --------------------------------------------------------------------------------------------------------- the checker


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("quaere serach Halm --index INDEX", "invalid choice: 'serach'"),
        ("quaere search Halm --indx INDEX", "there is no option --indx: did you mean --index?"),
        ("quaere search Halm --index INDEX --colour red", "there is no option --colour"),
        ("quaere eval --model M --questions F --lim 3", "there is no option --lim: did you mean --limit?"),
        ("quaere eval --model M --questions F --limit three", "invalid"),
        ("quaere search Halm --index", "expected one argument"),
        ("quaere export --role solver", "required: RUN"),
        ("quaere runs shw RUN", "invalid choice: 'shw'"),
        ("quaere evolve drzro --index INDEX", "invalid choice: 'drzro'"),
        (f"{WHOLE} --set solver.stepps=3", "unknown setting solver.stepps: did you mean solver.steps?"),
        (f"{WHOLE} --set solver.steps=three", "solver.steps must be a whole number"),
        (f"{WHOLE} --set solver.evaluation=fast", "solver.evaluation"),
        (f"{WHOLE} --preset huge", "unknown preset 'huge'"),
        (f"{WHOLE} --solver-dialect morse", "invalid choice: 'morse'"),
        (f"{WHOLE} --questions FILE", "drzero takes no --questions"),
        ("quaere evolve --resume RUN --set harness.colour=red", "unknown setting harness.colour"),
        ("quaere world --out DIR; quaere indx DIR --out DIR", "invalid choice: 'indx'"),
        ("quaere evolve drzero|drzro --index DIR", "invalid choice: 'drzro'"),
        ("quaere curriculum RUN accept|rejct ID...", "invalid choice: 'rejct'"),
        ("quaere curriculum RUN add FILE [--iteratoin I]", "there is no option --iteratoin: did you mean --iteration?"),
        ("quaere eval --questions F --model M | --rum RUN", "there is no option --rum: did you mean --run?"),
        ("quaere eval $WHAT --questions F", "$WHAT is not set above"),
        ("quaere evolve score ... --set harness.knd=llm", "unknown setting harness.knd"),
    ],
)
def test_a_stale_command_is_found(command, said):
    [fault] = faults("page.md", f"Say:\n\n    {command}\n")
    assert fault.startswith(f"page.md:3: {command}: ") and said in fault
    [fault] = faults("page.md", f"# Page\n\n```sh\n$ ls\n$ {command}\n```\n")
    assert fault.startswith("page.md:5: ") and said in fault


@pytest.mark.parametrize(
    "command",
    [
        f"{WHOLE} --set solver.steps=3 --set seed=1 --preset demo",
        f"{WHOLE} --set key=value --preset P",
        "quaere evolve --resume RUN --set solver.steps=2 --force",
        "quaere evolve --resume RUN --set harness.kind=llm",
        "quaere evolve score ... --set harness.kind=llm",
        "quaere evolve RECIPE --model M --index I --solver-dialect P",
        "quaere curriculum RUN [filters]   # a list",
        "quaere curriculum RUN accept|reject ID... [--note TEXT]",
        "quaere curriculum RUN add FILE [--iteration I] [--all]",
        "quaere eval --model M | --run RUN --questions F --limit N",
        "quaere runs show RUN | head",
        "quaere models pull smollm2-135m > /dev/null",
        "QUAERE_RUNS=runs .venv/bin/quaere runs list",
    ],
)
def test_a_command_that_is_right_is_let_through(command):
    text = f"    {command}\n"
    assert len(read_document("page.md", text)) == 1
    assert faults("page.md", text) == []


def test_a_command_goes_on_over_lines_and_with_variables():
    page = """
    LIMITS="--max-turns 5
        --topk {topk}"
    ASK="--questions F $LIMITS"
    quaere eval --model M $ASK \\
        --index DIR  # and more
"""
    assert faults("page.md", page.format(topk=2)) == []
    [fault] = faults("page.md", page.format(topk="two"))
    assert fault.startswith("page.md:5: ") and "--topk" in fault


def test_a_sentence_may_name_a_command_and_not_all_it_needs():
    page = "Type `quaere export` or `quaere eval\n--questions`, and\n`quaere evolve drzero --solver-dialect`.\n\n"
    page += "| `quaere ask Q \\| head` |"
    assert [shown.line for shown in read_document("page.md", page)] == [1, 1, 3, 5]
    assert faults("page.md", page) == []
    [fault] = faults("page.md", "One.\nType `quaere eval\n--qustions`.")
    assert fault.startswith("page.md:2: quaere eval --qustions: ")


def test_what_a_command_prints_is_not_taken_for_one():
    page = "    $ quaere runs list\n    go on with:\n      quaere nonsense\n\n    quaere nonsense\n"
    assert [shown.text for shown in read_document("page.md", page)] == ["quaere runs list"]


def test_a_makefiles_variables_are_put_in():
    makefile = "BIN := venv/bin\nTRY := $(BIN)/quaere search\nall:\n\t$(TRY) Halm --index {index} \\\n\t\t--json\n"
    makefile += '\t@echo "  $(BIN)/quaere doctor {more}"\n'
    assert faults("Makefile", makefile.format(index="DIR", more="")) == []
    found = faults("Makefile", makefile.format(index="", more="--colour"))
    assert [fault.partition(" ")[0] for fault in found] == ["Makefile:4:", "Makefile:6:"]


def test_a_list_of_words_is_checked_as_it_is():
    check_command(["search", "Halm", "--index", "DIR"])
    with pytest.raises(BadInput, match="there is no option --colour"):
        check_command(["search", "Halm", "--index", "DIR", "--colour"])


def test_the_readme_measures_what_training_gains():
    """On questions that were not trained on, and against the model that training began with."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = read_document("README.md", text[text.index("## Evolve") : text.index("## Recipes")])
    words = [shlex.split(line.text)[1:] for line in shown if line.is_whole]
    parsed = [(line[0], build_parser().parse_args(line)) for line in words]
    (evolved,) = [args for command, args in parsed if command == "evolve"]
    before, after = [args for command, args in parsed if command == "eval"]
    assert before.model == evolved.model and str(after.compare) in (str(before.out), str([before.out]))
    assert before.questions == after.questions != evolved.questions
