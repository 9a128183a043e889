"""What an installation without the extra `torch` can do, and what it says about the rest.

Each command runs in a process of its own, in which none of the libraries that models need can be imported: most in a
fork of one that has loaded everything else.
"""

import json
import signal
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from loopback import serve_chat
from quaere import __version__
from quaere.cli.main import COMMANDS
from quaere.errors import MODEL_LIBRARIES, install_hint
from quaere.records import Candidate
from quaere.runs import Run
from quaere.search.index_build import build_index

ABSENT = (*MODEL_LIBRARIES, "peft", "faiss", "sentence_transformers", "accelerate", "sklearn", "scipy")
# None in sys.modules makes an import fail and `find_spec` find nothing, as if the library were not there.
START = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r})); from quaere.cli.main import main; sys.exit(main())"
# What most of the commands load on their way, once for all of them.
LOADED = ("bm25s", "httpx", "numpy", "rich.table", "yaml", "quaere.api.agent", "quaere.cli.curriculum_view")
LOADED += (
    "quaere.dialects.notes",
    "quaere.evaluation.qa.scores",
    "quaere.policies.model_folders",
    "quaere.runs",
)
# Reads commands as lines of JSON, and answers with their exit codes.
FORKS = f"""
import importlib, json, os, sys, traceback
sys.modules.update(dict.fromkeys({ABSENT!r}))
from quaere.cli.main import COMMANDS, main
for name in (*{LOADED!r}, *(f"quaere.cli.{{name}}" for name in COMMANDS)):
    importlib.import_module(name)
for line in sys.stdin:
    words, *streams = json.loads(line)
    child = os.fork()
    if not child:
        code = 1
        for number, path in enumerate(streams, start=1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
FIXTURE = Path(__file__).parents[1] / "fixtures/run-0.1.0.tar.xz"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Documents with an index, a run that wrote questions, and a run that was trained and stopped."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "notes").mkdir()
    (folder / "notes" / "halm.md").write_text("# Halm\n\nOrsolya Venn built the Halm bridge in 1702.\n")
    (folder / "questions.jsonl").write_text(json.dumps({"id": "q", "question": "Who?", "answers": ["Orsolya Venn"]}))
    index = build_index(folder / "notes", folder / "index")
    settings = {"recipe": "drzero", "index": str(index.path), "index_fingerprint": index.fingerprint}
    drawn = {"step": 1, "iteration": 0, "episode_id": "a", "document_id": "halm.md", "hops": 1}
    asked = {"question": "Who built the bridge?", "answer": "Orsolya Venn", "num_right": 2, "num_attempts": 5}
    with Run.create(folder / "runs" / "written", "evolve", settings) as run:
        run.add_candidates([Candidate("a", **drawn, **asked)])
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder, filter="data")
    config = folder / "old-run/run/config.yaml"
    config.write_text(config.read_text().replace("  protocol: tool-call\n", "  dialect: tool-call\n"))
    with closing(sqlite3.connect(folder / "old-run/run/run.db")) as database, database:
        database.execute("UPDATE runs SET version = ?", (__version__,))  # one of 0.1.0 would be refused for its age
    return folder


@pytest.fixture(scope="module")
def forks(place):
    """The process whose forks run commands, in the place."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", FORKS], cwd=place, **pipes) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def quaere(place, forks, tmp_path, monkeypatch):
    monkeypatch.chdir(place)  # as the forks are: hints name paths from here

    def call(line, code=0):
        out, err = tmp_path / "out", tmp_path / "err"
        forks.stdin.write(json.dumps([line.split(), str(out), str(err)]) + "\n")
        forks.stdin.flush()
        assert int(forks.stdout.readline()) == code, err.read_text()
        return (err if code else out).read_text()

    return call


# ------------------------------------------------------------------------------------------------- what works without


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--version", "quaere "),
        ("index notes --out new-index", "1 passage of 1 document, engine bm25"),
        ("doctor --index index", "1 document, 1 passage,"),
        ("search Halm --index index", "Orsolya Venn"),
        ("world --articles 200 --out world", "200 articles"),
        ("questions --index index --num 3 --out open.jsonl", "open.jsonl: 3 questions"),
        ("report Halm --index index --runs composed --out composed/report.docx", "Halm bridge in 1702 [1]."),
        ("models list", "smollm2-135m"),
        ("runs list --runs runs", "written"),
        ("runs list --runs old-run", "32"),
        ("runs show old-run/run", "stopped after step 1"),
        ("runs show old-run/run --metrics reward/*", "reward/mean"),
        ("curriculum runs/written", "Who built the bridge?"),
        ("curriculum runs/written show a", "Who built the bridge?"),
        ("curriculum runs/written flag a", "1"),
        ("curriculum runs/written export candidates.jsonl --force", "exported"),
        ("curriculum runs/written add questions.jsonl", "1"),
        ("curriculum questions.jsonl quality --index index", "1 question,"),
    ],
)
def test_documents_and_runs_need_no_model_library(quaere, line, said):
    assert said in quaere(line)


def test_every_command_explains_itself_without_them():
    """In one process: what the help of a command loads is the same in its own."""
    code = START.replace("sys.exit(main())", "") + (
        "from contextlib import suppress\n"
        f"for name in {[name.replace('_', '-') for name in COMMANDS]}:\n"
        "    with suppress(SystemExit): main([name, '--help'])\n"
        "main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: quaere") == len(COMMANDS) + 1


def test_doctor_is_content_and_says_what_models_need(quaere):
    checks = {check["name"]: check for check in json.loads(quaere("doctor --index index --json"))}
    assert checks["torch"]["status"] == "warn" and checks["torch"]["hint"] == install_hint("torch")
    assert "not installed: torch, train" in checks["extras"]["detail"]
    assert checks["index"]["status"] == "ok"


def test_a_search_server_runs_without_them(place):
    command = [sys.executable, "-c", START, "serve-search", "--index", str(place / "index"), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline()
        assert "serving 1 passage (bm25, stemmer english) at http://127.0.0.1:" in line, line
        url = line.split(" at ")[1].split("/retrieve")[0]
        reply = httpx.post(f"{url}/retrieve", json={"queries": ["Halm bridge"], "topk": 1}, trust_env=False)
        assert reply.status_code == 200 and "Orsolya Venn" in reply.text
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0
    finally:
        server.kill()
        server.stderr.close()


def test_runs_are_viewed_without_them(place):
    command = [sys.executable, "-c", START, "view", str(place / "old-run/run"), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline()
        assert "showing old-run at http://127.0.0.1:" in line, line
        page = line.split(" at ")[1].split(",")[0]
        assert page.endswith("/run/run")
        reply = httpx.get(page, trust_env=False)
        assert reply.status_code == 200 and "stopped after step 1" in reply.text
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0
    finally:
        server.kill()
        server.stderr.close()


def test_an_endpoint_is_asked_without_them(quaere):
    def answer(body):
        told = any("Orsolya" in str(message["content"]) for message in body["messages"])
        call = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
        return "<answer>Orsolya Venn</answer>" if told else call

    with serve_chat(answer) as url:
        line = f"ask --questions questions.jsonl --index index --model openai:any@{url} --json --runs asked"
        (found,) = [json.loads(said) for said in quaere(line).splitlines()]
    assert (found["answer"], found["searches"]) == ("Orsolya Venn", ["Halm bridge"])


# -------------------------------------------------------------------------------------------------- what does not work


@pytest.mark.parametrize(
    "line",
    [
        "ask Who? --index index --model old-run/model",
        "ask Who? --index index --model smollm2-135m",
        "report Why? --index index --model old-run/model",
        "eval --questions questions.jsonl --index index --model old-run/model",
        "eval --questions questions.jsonl --index index --run old-run/run",
        "learn index --model old-run/model --out out",
        "warmup drzero --model old-run/model --out out",
        "evolve drzero --index index --model old-run/model --preset demo --out out",
        "evolve drzero --index index --model old-run/model --dry-run",
        "evolve --resume old-run/run",
        "export old-run/run --out out",
        "export old-run/run --merge --out out",
        "serve --index index --model old-run/model",
        "questions --checked --index index --model old-run/model --out out.jsonl",
        "models pull smollm2-135m",
        "curriculum runs/written export out.parquet --verl",
    ],
)
def test_a_model_is_refused_in_one_line_that_says_what_to_install(quaere, place, line):
    before = sorted(place.iterdir())
    *notes, said, hint = quaere(line, code=2).splitlines()
    assert said == "quaere: torch is not installed, and models need it"
    assert hint == f"  try: {install_hint('torch')}"
    assert len(notes) <= 1  # which model is being loaded
    assert sorted(place.iterdir()) == before  # no run was begun, nothing was downloaded


def test_a_module_that_no_extra_has_is_not_taken_for_one():
    from quaere.errors import catch_missing_libraries

    with pytest.raises(ModuleNotFoundError, match=r"torch\.no_such_part"), catch_missing_libraries():
        __import__("torch.no_such_part")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"), catch_missing_libraries():
        __import__("no_such_library")


# ----------------------------------------------------------------------------------------------- what a command loads


@pytest.mark.parametrize(
    ("lines", "unneeded"),
    [
        (
            ("index notes --out other-index", "search Halm --index other-index"),
            {"httpx", "starlette", "uvicorn", "sqlite3", "zstandard", "quaere.runs"},
        ),
        (("runs list --runs runs",), {"httpx", "starlette", "uvicorn", "numpy", "bm25s"}),
    ],
)
def test_a_command_loads_only_what_it_needs(place, lines, unneeded):
    code = "import sys; from quaere.cli.main import main\nfor line in sys.argv[1:]: assert main(line.split()) == 0\n"
    command = [sys.executable, "-c", f"{code}print(*sys.modules, file=sys.stderr)", *lines]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=True)
    assert set(done.stderr.splitlines()[-1].split()) & (unneeded | set(MODEL_LIBRARIES)) == set()


def test_a_command_does_not_load_the_others():
    code = (
        "import sys; from quaere.cli.main import build_parser; build_parser('serve-search');"
        "print(*(name for name in sys.modules if name.startswith('quaere.cli.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    registered = {f"quaere.cli.{name}" for name in COMMANDS}
    assert registered & set(loaded) == {"quaere.cli.serve_search"}
