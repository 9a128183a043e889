"""Every example of docs/python.md, in its order; each section in a folder that has what it speaks of."""

import io
import re
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from msgspec import structs

import tiny
from backups import SENTENCE, TURNS, EverySession, scripted, write_notes
from quaere.api import warmup as work
from quaere.policies import catalogue
from quaere.recipes.drzero import PRESETS
from village_runs import SMALL

PAGE = Path(__file__).parents[2] / "docs/python.md"
REPORT = ["<search>backups</search>", f"<answer>{SENTENCE} [1]</answer>"]
TRAINING = ("Teach", "Train")
LITTLE = {"articles": 200, "facts": (1,), "proposer_hops": (1,), "topk": 1, "tool_response_tokens": 200}


def read_sections(text):
    """The code of every block, by the section it stands in."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    titled = [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]
    return {title: re.findall(r"^```python\n(.*?)^```$", part, re.DOTALL | re.MULTILINE) for title, part in titled}


class Script(EverySession):
    """Reports are written, questions are answered."""

    def __missing__(self, session):
        return REPORT if session.startswith("report") else super().__missing__(session)


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """A folder with the notes, in which every model that is opened answers as if it knew them."""
    folder = tmp_path / "notes-folder"
    folder.mkdir()
    write_notes(folder)
    return folder


@pytest.fixture
def trained(tmp_path, village_paths, monkeypatch):
    """A folder with the village's index, questions on it and the model that knows its format, as `warm`.

    Presets and lessons are too large for it, and the model of the catalogue is a tiny one here.
    """
    folder = tmp_path / "training"
    folder.mkdir()
    index, model = village_paths
    shutil.copytree(index, folder / "notes-index")
    shutil.copytree(model, folder / "village-model")
    rows = [f'{{"question": "Who built {name}?", "answers": ["Venn"]}}\n' for name in ("Halm", "Oss")]
    (folder / "questions.jsonl").write_text("".join(rows))
    tiny.model(scale=1).save_pretrained(folder / "tiny")
    tiny.tokenizer().save_pretrained(folder / "tiny")
    resolve = catalogue.resolve_model

    def resolved(name, **options):
        return resolve(str(folder / "tiny") if name == "smollm2-135m" else name, **options)

    teach = work._warm_up

    def teach_little(settings, display):
        return teach(structs.replace(settings, **LITTLE), display)

    for module in (catalogue, work):
        monkeypatch.setattr(module, "resolve_model", resolved)
    monkeypatch.setattr(work, "_warm_up", teach_little)
    monkeypatch.setitem(PRESETS, "demo", SMALL)
    return folder


def run(blocks, names):
    said = io.StringIO()
    with redirect_stdout(said):
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    return said.getvalue()


def test_examples_about_asking(notes, monkeypatch):
    monkeypatch.chdir(notes)
    monkeypatch.setattr(catalogue.CatalogueEntry, "adapters", ())  # the script has the turns of an untaught model
    for place in ("quaere.api.agent", "quaere.api.report"):
        monkeypatch.setattr(f"{place}.needs_guide", lambda name: False)
    sections = read_sections(PAGE.read_text(encoding="utf-8"))
    names, said = {}, {}
    for title, blocks in sections.items():
        if title not in TRAINING:
            script = ["<answer>May 2019</answer>"] if title == "Evaluate" else TURNS
            monkeypatch.setattr("quaere.rollout.policy.open_policy", scripted(Script(script)))
            said[title] = run(blocks, names)
    assert set(said) == {"", "Index and search", "Ask", "Search with your own function", "Evaluate", "Report", "Errors"}
    assert "ops.md: " in said["Index and search"]
    assert f"May 2019\nops.md, characters 30 to {30 + len(SENTENCE)}:\n{SENTENCE}\nbackups" in said["Ask"]
    assert said["Ask"].endswith("Where does the Oss rise? -> May 2019\n")
    assert said["Search with your own function"] == "May 2019\n"
    assert "as it is - from memory, over 2 shared questions" in said["Evaluate"] and (notes / "result.json").is_file()
    assert f"{SENTENCE} [1]\n[1] Backups\ncitations that lead nowhere: ()" in said["Report"]
    assert SENTENCE in (notes / "report.html").read_text(encoding="utf-8")
    assert "nowhere" in said["Errors"] and "try: quaere index" in said["Errors"]


def test_examples_fit_a_machine_without_a_gpu():
    blocks = read_sections(PAGE.read_text(encoding="utf-8"))["Train"]
    assert re.findall(r'preset="([^"]+)"', "\n".join(blocks)) == ["demo"]


def test_examples_about_training(trained, monkeypatch):
    monkeypatch.chdir(trained)
    sections = read_sections(PAGE.read_text(encoding="utf-8"))
    names = {}
    run(sections[""], names)
    assert run(sections["Teach"], names).endswith("warm\n") and (trained / "warm" / "warmup.json").is_file()
    # Twelve episodes teach a tiny model nothing; from here on it is one that knows the format.
    shutil.rmtree("warm")
    shutil.move("village-model", "warm")
    said = run(sections["Train"], names)
    assert "proposer 1/2 · iteration 1 · reward" in said and "done" in said and "EM %" in said
    assert (trained / "runs" / "notes" / "run.db").is_file() and (trained / "notes-agent" / "quaere.json").is_file()


def test_blocks_are_found_by_section():
    text = "a\n```python\nx = 1\n```\n## B\n```sh\nls\n```\n```python\ny = 2\nz = 3\n```\n"
    assert read_sections(text) == {"": ["x = 1\n"], "B": ["y = 2\nz = 3\n"]}
