"""`quaere.warmup`: from a model to one that was taught the protocol, inside a running event loop too."""

import json

import pytest

import quaere
import quaere.warmup.lessons  # the package has the name of the function, and both are to be had
import tiny
from evaluated import answer, episode, search
from quaere.api import warmup as work
from quaere.api.background import run_in_thread
from quaere.api.warmup_settings import WarmupSettings
from quaere.warmup.scripted_episodes import Demonstrations

SMALL = {"episodes": 4, "facts": (1,), "proposer_hops": (1,), "epochs": 1, "batch": 2, "articles": 200}
SMALL |= {"device": "cpu", "style": "brief", "topk": 1, "turn_tokens": 1024, "tool_response_tokens": 200}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    tiny.model(scale=1).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


async def test_a_model_is_taught_beside_a_running_loop(base, tmp_path):
    steps, notes = [], []
    settings = {**SMALL, "learning_rate": 3e-3}
    told = {"on_step": steps.append, "on_note": notes.append}
    out = quaere.warmup("drzero", model=base, out=tmp_path / "warm", settings=settings, **told)
    manifest = json.loads((out / "warmup.json").read_text())
    assert manifest["loss_after"] < manifest["loss_before"] and manifest["style"] == "brief"
    assert [step.step for step in steps] == [1, 2] and notes[1].startswith("4 episodes kept")
    with quaere.Agent(out, search=lambda query: [], max_turns=2, turn_tokens=4) as agent:
        assert agent.protocol.style == "brief" and agent.ask("Who?").episode.turns


def test_an_adapter_is_written_alone_with_what_it_was_taught(base, tmp_path):
    out = tmp_path / "warm"
    given = {"also": ("eve",), "lora_rank": 4, "adapter": True, "epochs": 1, "batch": 2, "device": "cpu"}
    settings = WarmupSettings(recipe="drzero", model=str(base), out=out, **given)
    shown = Demonstrations([episode(search(), answer("Venn"))] * 2)
    work._warm_up(settings, work._Callbacks(print, print, lambda: None), lambda renderer: shown)
    assert {path.name for path in out.iterdir()} == {"adapter_config.json", "adapter_model.safetensors", "warmup.json"}
    config, manifest = (json.loads((out / name).read_text()) for name in ("adapter_config.json", "warmup.json"))
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 8, str(base))
    assert (manifest["num_episodes"], manifest["num_steps"], manifest["lora_rank"]) == (2, 1, 4)
    # One of its dialects quotes, so it is asked to.
    assert manifest["evidence"] and manifest["also"] == ["eve"]


@pytest.mark.parametrize(
    ("recipe", "options", "said"),
    [
        ("drzro", {}, "did you mean drzero"),
        ("drzero", {"also": ("evalcat",)}, "did you mean evalact"),
        ("drzero", {"settings": {"episdoes": 3}}, "did you mean episodes"),
        ("drzero", {"settings": {"episodes": "many"}}, "episodes"),
        ("drzero", {"settings": {"practice": 3}}, "practice of a warm-up must be a path or null, not 3"),
        ("drzero", {"settings": {"batch": 0}}, "batch must be at least 1"),
        ("drzero", {"questions": "mine.jsonl"}, "questions needs --index"),
        ("score", {"index": "nowhere"}, "score cannot be taught from documents"),
    ],
)
def test_bad_input_is_said_before_any_work(base, tmp_path, recipe, options, said):
    with pytest.raises(quaere.BadInput, match=said):
        quaere.warmup(recipe, model=base, out=tmp_path / "warm", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_caller_ends_the_work(monkeypatch):
    """As Ctrl-C does to whoever waits: the work is ended at its next step, and only then does the caller go on."""
    ended = []

    def work(check):
        try:
            while True:
                check()
        finally:
            ended.append(True)

    def interrupted(self, timeout=None):
        raise KeyboardInterrupt

    monkeypatch.setattr("quaere.api.background.Future.result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_thread(work)
    assert ended == [True]
