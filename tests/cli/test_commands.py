"""The command as a person meets it: every command end to end on tiny data, and one clear line for every bad input."""

import gzip
import json
import subprocess
import sys
import warnings

import pytest
import torch

import tiny
from quaere.cli import terminal
from quaere.cli.main import COMMANDS, main
from quaere.errors import StaleIndex

ANSWERED_OR_NOT = (0, 3)  # a model of random weights rarely answers


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of documents, its index, and a tiny model directory."""
    root = tmp_path_factory.mktemp("place")
    docs = root / "docs"
    docs.mkdir()
    (docs / "halm.md").write_text("# Halm bridge\n\nOrsolya Venn built the Halm bridge in 1702.\n", encoding="utf-8")
    (docs / "oss.txt").write_text("The Oss rises in the Korrin hills.\n", encoding="utf-8")
    assert main(["index", str(docs), "--out", str(root / "index")]) == 0
    tiny.model().save_pretrained(root / "model")
    tiny.tokenizer().save_pretrained(root / "model")
    (root / "questions.jsonl").write_text(
        '{"id": "q1", "question": "Who built it?", "answers": ["Orsolya Venn"], "hops": 1}\n{"question": "Where?"}\n'
    )
    return root


def ask(place, *more):
    limits = ["--max-turns", "2", "--turn-tokens", "8"]
    where = ["--index", str(place / "index"), "--model", str(place / "model"), "--runs", str(place / "runs")]
    return main(["ask", *more, *where, *limits])


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_is_light():
    code = "import sys; from quaere.cli.main import build_parser; build_parser('').format_help(); print(*sys.modules)"
    loaded = {name.split(".")[0] for name in python(code).split()}
    heavy = {
        "torch",
        "transformers",
        "tokenizers",
        "faiss",
        "sentence_transformers",
        "bm25s",
        "numpy",
        "huggingface_hub",
        "httpx",
        "sqlite3",
        "zstandard",
    }
    assert loaded & heavy == set()


@pytest.mark.parametrize("command", [name.replace("_", "-") for name in COMMANDS])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert command in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("indx", "'indx': did you mean index?"),
        ("serve_search", "'serve_search': did you mean serve-search?"),
        ("Evolve", "'Evolve': did you mean evolve?"),
        ("curicculum", "'curicculum': did you mean curriculum?"),
        ("xyzzy", "'xyzzy': quaere --help lists what there is"),
        ("a\x1b[31m\n", "'a\\x1b[31m\\n': quaere --help lists what there is"),
        ("", "'': quaere --help lists what there is"),
    ],
)
def test_an_unknown_command_gets_the_nearest_in_one_line(typed, said, capsys):
    assert main([typed, "--out", "DIR"]) == 2
    assert capsys.readouterr().err == f"quaere: there is no command {said}\n"


def test_every_command_is_known_by_the_name_it_is_registered_under():
    from quaere.cli.main import build_parser, check_command

    (commands,) = [action.choices for action in build_parser()._actions if action.choices]
    assert len(commands) == len(COMMANDS)
    for name in commands:
        check_command([name])


def test_ask_streams_turns_and_stores_the_episode(place, capsys):
    assert ask(place, "Who built the Halm bridge?", "--guided") in ANSWERED_OR_NOT
    out = capsys.readouterr().out
    assert "Turn 1" in out and "quaere runs show" in out
    run = out.rsplit("quaere runs show", 1)[1].strip()
    assert main(["runs", "show", run, "ask", "--tokens"]) == 0
    shown = capsys.readouterr().out
    assert "Who built the Halm bridge?" in shown and "with loss" in shown


def test_ask_in_json(place, capsys):
    assert ask(place, "Who?", "--json") in ANSWERED_OR_NOT
    found = json.loads(capsys.readouterr().out)
    assert found["question"] == "Who?"
    assert found["end"] in ("answered", "turn_limit")
    assert found["episode"] == "ask"


def test_ask_many_gives_a_table_with_scores(place, capsys):
    assert ask(place, "--questions", str(place / "questions.jsonl"), "--show") == 0
    out = capsys.readouterr().out
    assert "2 questions" in out and "of 1 exactly right" in out and "Expected: Orsolya Venn" in out
    assert ask(place, "--questions", str(place / "questions.jsonl"), "--json", "--limit", "1") == 0
    assert json.loads(capsys.readouterr().out)["scores"] == {"answer/exact_match": 0.0, "answer/f1": 0.0}


def test_the_same_seed_gives_the_same_episode(place, capsys):
    def sampled(seed):
        assert ask(place, "Who?", "--json", "--temperature", "1", "--seed", seed) in ANSWERED_OR_NOT
        run = json.loads(capsys.readouterr().out)["run"]
        assert main(["runs", "show", run, "ask", "--json"]) == 0
        episode = json.loads(capsys.readouterr().out)
        return [segment["token_ids"] for segment in episode["segments"]]

    assert sampled("3") == sampled("3") != sampled("4")


def test_search_finds_what_was_indexed(place, capsys):
    assert main(["search", "Halm bridge", "--index", str(place / "index"), "--json"]) == 0
    assert "Orsolya Venn" in capsys.readouterr().out


def test_doctor_checks_template_and_index(place, capsys):
    assert main(["doctor", "--model", str(place / "model"), "--index", str(place / "index"), "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks["template"]["status"] == checks["index"]["status"] == checks["python"]["status"] == "ok"
    assert "<|im_end|>" in checks["template"]["detail"]


def test_doctor_refuses_a_template_without_joints_and_says_what_another_does_to_earlier_turns(place, tmp_path, capsys):
    tiny.tokenizer(tiny.COUNTS_TURNS).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((place / "model" / "config.json").read_text())
    assert main(["doctor", "--model", str(tmp_path)]) == 2
    streams = capsys.readouterr()
    assert "different text between" in " ".join(streams.out.split()) and "these checks failed: template" in streams.err
    cuts = tiny.CHATML.replace("{{ message.content }}", "{{ message.content.split('</think>')[-1] }}")
    tiny.tokenizer(cuts).save_pretrained(tmp_path)
    assert main(["doctor", "--model", str(tmp_path)]) == 0
    assert "an episode keeps its turns, where the template cuts thoughts" in " ".join(capsys.readouterr().out.split())


def test_doctor_says_how_a_model_without_a_template_is_spoken_to(place, tmp_path, capsys):
    tiny.tokenizer("plain").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((place / "model" / "config.json").read_text())
    assert main(["doctor", "--model", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "plain paragraphs, because it has no chat template" in said
    assert "a turn ends with '<|endoftext|>'" in said


def bad(capsys, argv, *words):
    """Exit code 2, and one line on stderr that says these words; a second line may say what to type."""
    assert main(argv) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("loading")]
    assert 1 <= len(lines) <= 2, lines
    assert lines[0].startswith("quaere: ")
    assert all(line.startswith("  try: ") for line in lines[1:])
    for word in words:
        assert word in lines[0], lines


def test_bad_input_gets_one_clear_line(place, tmp_path, capsys, monkeypatch):
    index, model, runs = str(place / "index"), str(place / "model"), ["--runs", str(tmp_path / "runs")]
    bad(capsys, ["ask", "Who?", "--index", str(tmp_path / "none"), "--model", model], "does not exist")
    bad(capsys, ["ask", "Who?", "--index", str(tmp_path), "--model", model], "is not an index")
    bad(capsys, ["ask", "Who?", "--index", index, "--model", "no/such-model", *runs], "unknown model no/such-model")
    bad(capsys, ["ask", "Who?", "--index", index, "--model", "./none", *runs], "no model directory")
    bad(capsys, ["ask", "Who?", "--index", "http://127.0.0.1:9", "--model", model, *runs], "127.0.0.1:9")
    endpoint = "openai:m@http://127.0.0.1:9/v1"
    bad(capsys, ["ask", "Who?", "--index", index, "--model", endpoint, "--json", *runs], "127.0.0.1:9")
    bad(capsys, ["ask", "Who?", "--index", index, "--model", "openai:m", *runs], "an endpoint must be written as")
    bad(capsys, ["ask", "--index", index], "give either a question or --questions")
    bad(capsys, ["ask", " ", "--index", index], "the question is empty")
    bad(capsys, ["ask", "Who?", "--index", index, "--topk", "0"], "--topk must be at least 1")
    bad(capsys, ["ask", "Who?", "--index", index, "--temperature", "-1"], "--temperature must be at least 0")
    bad(capsys, ["search", "x", "--index", "http://127.0.0.1:9"], "127.0.0.1:9")
    bad(capsys, ["runs", "show", "none", *runs], "no run none")
    empty = tmp_path / "empty"
    empty.mkdir()
    bad(capsys, ["index", str(empty), "--out", str(tmp_path / "i")], str(empty))
    bad(capsys, ["world", "--seed", "1", "--articles", "3", "--out", str(tmp_path / "w")], "200")


def test_broken_lines_are_named_by_number(place, tmp_path, capsys):
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "1", "title": "a", "text": "b"}\n{"id": "2", "title"\n')
    bad(capsys, ["index", str(broken), "--out", str(tmp_path / "i")], "broken.jsonl", "line 2")
    assert not (tmp_path / "i").exists()
    broken.write_text('{"question": "a"}\n\n{"question": 3}\n')
    bad(capsys, ["ask", "--questions", str(broken), "--index", str(place / "index")], "line 3")
    broken.write_text('{"question": "a", "id": "x"}\n{"question": "b", "id": "x"}\n')
    bad(capsys, ["ask", "--questions", str(broken), "--index", str(place / "index")], "line 2", "twice")
    damaged = tmp_path / "cut.jsonl.gz"
    damaged.write_bytes(gzip.compress(b'{"question": "a"}\n' * 99)[:-9])
    bad(capsys, ["ask", "--questions", str(damaged), "--index", str(place / "index")], "damaged: ")
    broken.write_text("\n")
    bad(capsys, ["ask", "--questions", str(broken), "--index", str(place / "index")], "no question")


def test_a_pull_without_pip_says_so(tmp_path, capsys, monkeypatch):
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setenv("QUAERE_CACHE", str(tmp_path))
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pip" else find_spec(name, *rest)
    )
    assert main(["models", "pull", "smollm2-135m"]) == 2
    err = capsys.readouterr().err
    assert "pip" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["search", "x", "--index", "no\x1b[2J\nquaere: done \u202e"],
        ["search", "x", "--index", "a", "--\x1b[2J\nquaere: done \u202e"],
    ],
)
def test_what_was_typed_does_not_act_on_the_terminal(words, capsys):
    try:
        assert main(words) == 2
    except SystemExit as ended:
        assert ended.code == 2
    said = capsys.readouterr().err
    assert not set(said) & set("\x1b\u202e") and "\nquaere: done" not in said
    assert "␛[2J␊quaere: done \\u202e" in said


def test_warnings_for_the_user_are_one_line_and_others_are_shown_as_before(recwarn, capsys):
    assert main(["models", "list"]) == 0
    warnings.warn("something else", UserWarning, stacklevel=1)
    assert [str(one.message) for one in recwarn] == ["something else"]
    capsys.readouterr()
    terminal._show("the index\x1b[2J is stale", StaleIndex, "index.py", 7)
    assert capsys.readouterr().err == "quaere: the index␛[2J is stale\n"


def test_a_gpu_without_memory_left_is_one_line_and_what_needs_less(monkeypatch, capsys):
    def check():
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 55 "
            "MiB is free. Process 2695 has 46.07 GiB memory in use. See documentation for Memory Management (https://...)"
        )

    monkeypatch.setattr("quaere.cli.doctor._python", check)
    assert main(["doctor"]) == 2
    line, hint = capsys.readouterr().err.splitlines()
    assert line.startswith("quaere: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0") and "2695" not in line
    assert "solver.learner.micro_tokens" in hint


def test_another_error_of_a_library_is_not_taken_for_a_lack_of_memory(monkeypatch):
    def check():
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("quaere.cli.doctor._python", check)
    with pytest.raises(RuntimeError, match="shapes differ"):
        main(["doctor"])
