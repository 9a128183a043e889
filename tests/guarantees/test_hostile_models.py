"""S8: no pickle, no remote code, no endless template: each of 30 hostile model folders gets one line and exit code 2.

Whatever in a folder would run code if it were loaded writes a file; none is written.
"""

import json
import pickle
import shutil

import pytest

import tiny
from quaere.chat import template
from quaere.chat.renderer import Renderer
from quaere.cli.main import main
from quaere.errors import TemplateRefused
from quaere.policies.model_folders import load_tokenizer

SHORT = ("--max-turns", "2", "--turn-tokens", "8", "--dtype", "float32", "--json")
PAYLOAD = "import pathlib; pathlib.Path({!r}).write_text('run')"
REMOTE = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
ENDLESS = {
    "loops within loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a macro that calls itself": "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "a wide macro": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(99) }}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "squares": "{% set n = namespace(v=9) %}{% for i in range(40) %}{% set n.v = n.v * n.v %}{% endfor %}",
    "a doubled text": "{% set n = namespace(v='ab') %}{% for i in range(40) %}{% set n.v = n.v ~ n.v %}{% endfor %}",
    "a wide format": "{{ '%9999999999d' % 1 }}",
    "words without end": "{{ lipsum(n=9999999) }}",
    "only for our words": tiny.CHATML + "{% if 'search' in messages[0].content %}{% for a in range(99999) %}"
    "{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}",
}


class Payload:
    """What a pickle runs when it is loaded."""

    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return exec, (PAYLOAD.format(str(self.proof)),)


def write(folder, name, content):
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def change(folder, name, **changes):
    write(folder, name, {**json.loads((folder / name).read_text()), **changes})


def poison(folder, proof, name):
    """Turn a sound model folder into the hostile one of this name."""
    config, weights = json.loads((folder / "config.json").read_text()), folder / "model.safetensors"
    match name:
        case "pickled weights" | "pickled shards":
            weights.unlink()
            (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(proof)))
            if name == "pickled shards":
                index = {"metadata": {}, "weight_map": {"lm_head.weight": "pytorch_model.bin"}}
                write(folder, "pytorch_model.bin.index.json", index)
        case "pickle under the other name":
            weights.write_bytes(pickle.dumps(Payload(proof)))
        case "code for the model" | "code for the config":
            write(folder, "evil.py", PAYLOAD.format(str(proof)))
            kind = "unheard-of" if name == "code for the config" else config["model_type"]
            change(folder, "config.json", auto_map=REMOTE, model_type=kind)
            if name == "code for the model":  # of an architecture that is not built in
                change(folder, "config.json", architectures=["Evil"], model_type="evil")
        case "code for the tokenizer":
            write(folder, "evil.py", PAYLOAD.format(str(proof)))
            change(folder, "tokenizer_config.json", auto_map=REMOTE, tokenizer_class="Evil")
            (folder / "tokenizer.json").unlink()
        case "config of another kind":
            write(folder, "config.json", "[1, 2]")
        case "config that is cut":
            write(folder, "config.json", '{"model_type": "ll')
        case "config that is nested":
            write(folder, "config.json", '{"a":' * 100_000 + "1" + "}" * 100_000)
        case "config of strings":
            change(folder, "config.json", hidden_size="many", num_attention_heads="x")
        case "config of no layers":
            change(folder, "config.json", hidden_size=0, num_attention_heads=0)
        case "config that is endless":
            change(folder, "config.json", vocab_size=10**15)
        case "config of ten million layers":
            change(folder, "config.json", num_hidden_layers=10_000_000)
        case "config of minus one layer":
            change(folder, "config.json", num_hidden_layers=-1)
        case "config of more than the weights hold":
            change(folder, "config.json", vocab_size=10_000_000)
        case "weights that are cut":
            weights.write_bytes(weights.read_bytes()[:1000])
        case "weights with a false header":
            weights.write_bytes(b"\xff" * 8 + weights.read_bytes()[8:])
        case "shards out of the folder":
            weights.unlink()
            shards = {"metadata": {}, "weight_map": {"lm_head.weight": "../../../../../../etc/passwd"}}
            write(folder, "model.safetensors.index.json", shards)
        case "tokenizer that is cut":
            write(folder, "tokenizer.json", (folder / "tokenizer.json").read_text()[:500])
        case "tokenizer that is nested":
            write(folder, "tokenizer.json", "[" * 100_000)
        case "tokenizer config of another kind":
            write(folder, "tokenizer_config.json", "[]")
        case _:
            write(folder, "chat_template.jinja", ENDLESS[name])


NAMES = [
    *("pickled weights", "pickled shards", "pickle under the other name"),
    *("code for the model", "code for the config", "code for the tokenizer"),
    *("config of another kind", "config that is cut", "config that is nested", "config of strings"),
    *("config of no layers", "config that is endless", "config of ten million layers", "config of minus one layer"),
    *("config of more than the weights hold", "weights that are cut", "weights with a false header"),
    *("shards out of the folder", "tokenizer that is cut", "tokenizer that is nested"),
    *("tokenizer config of another kind", *ENDLESS),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "model"
    tiny.model().save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    from quaere.search.index_build import build_index

    home = tmp_path_factory.mktemp("index")
    (home / "corpus.jsonl").write_text('{"id": "a", "text": "Venn built the Halm bridge."}\n')
    return build_index(home / "corpus.jsonl", home / "index").path


def ask(model, index):
    return main(["ask", "Who built it?", "--model", str(model), "--index", str(index), *SHORT])


def test_there_are_thirty_folders_and_the_sound_one_answers(sound, index):
    assert len(NAMES) == 30
    assert ask(sound, index) in (0, 3)  # a model of random weights may find no answer


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_folder_gets_one_line(name, sound, index, tmp_path, capfd, monkeypatch):
    folder, proof = tmp_path / "model", tmp_path / "proof"
    shutil.copytree(sound, folder)
    poison(folder, proof, name)
    monkeypatch.chdir(folder)  # where code of the folder could be imported from
    monkeypatch.setattr("builtins.input", lambda *words: "y")  # a person who says yes to everything
    assert ask(folder, index) == 2
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("quaere:")]
    assert len(said) == 1 and "Traceback" not in said[0], said
    assert not proof.exists()


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_template_is_refused_wherever_it_is_met(name, sound, tmp_path, monkeypatch):
    monkeypatch.setattr(template, "MAX_LINES", 300_000)  # the limit itself is met in the folders above
    shutil.copytree(sound, tmp_path / "model")
    write(tmp_path / "model", "chat_template.jinja", ENDLESS[name])
    with pytest.raises(TemplateRefused) as caught:
        Renderer(load_tokenizer(str(tmp_path / "model")))
    assert "\n" not in str(caught.value)
