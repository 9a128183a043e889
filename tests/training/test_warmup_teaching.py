"""Teaching lowers the loss of episodes it has not seen, and the result is a folder like any other model."""

import asyncio
import json
from itertools import count
from types import SimpleNamespace

import msgspec
import pytest
from msgspec import structs

import tiny
from quaere.chat.renderer import Renderer
from quaere.errors import BadInput
from quaere.records import Episode, Question, Segment, SolveTask
from quaere.rollout.episode import Limits
from quaere.training.learner import Learner
from quaere.warmup.imitation import MANIFEST, WarmupManifest, check_target, count_steps, imitation, save_folder, teach
from quaere.warmup.lessons import LessonSettings, build_world
from quaere.warmup.oracle import play_oracle

LIMITS = Limits(turn_tokens=1024, sequence_tokens=4096, tool_response_tokens=300, topk=1)


@pytest.fixture(scope="module")
def episodes(tmp_path_factory):
    world, index = build_world(1, 200, tmp_path_factory.mktemp("warmup"))
    settings = {"roles": ("proposer",), "num_episodes": 10, "hop_ratio": (1,), "style": "brief", "limits": LIMITS}
    return asyncio.run(play_oracle(world, index, Renderer(tiny.tokenizer()), LessonSettings(**settings))).episodes


def learner(rate=3e-3):
    return Learner(tiny.model(scale=1, num_hidden_layers=1), imitation(rate))


def test_held_out_loss_falls(episodes):
    steps = []
    taught = teach(learner(rate=1e-2), episodes, epochs=2, batch=3, seed=1, report=steps.append)
    assert (taught.num_learnt, taught.num_held_out) == (9, 1)
    assert taught.num_steps == len(steps) == count_steps(10, epochs=2, batch=3) == 6
    assert taught.loss_after < taught.loss_before - 0.5
    assert [step.step for step in steps] == list(range(1, 7))
    assert [step.epoch for step in steps] == [0] * 3 + [1] * 3
    assert steps[-1].loss < steps[0].loss
    assert all(step.tokens_per_s > 0 and step.num_steps == 6 for step in steps)
    assert sum(step.num_tokens for step in steps[:3]) == sum(step.num_tokens for step in steps[3:])


def test_the_pace_is_the_tokens_of_a_step_by_its_seconds(monkeypatch):
    class Still:
        """A learner that learns nothing."""

        def step(self, samples):
            return {"loss/policy": 1.0}

        def score(self, samples):
            return [[-1.0] for _ in samples]

    def told(number):
        segments = (Segment("prompt", (1, 2), (), (False,) * 2), Segment("model", (3,) * 8, (), (True,) * 8))
        return Episode(f"e{number}", SolveTask(Question("q", "Who?")), "p", "m", 0, segments, (), None, "answered")

    steps = []
    ticks = count(100, 4)  # four seconds pass between any two looks at the clock
    monkeypatch.setattr("quaere.warmup.imitation.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    teach(Still(), [told(number) for number in range(5)], epochs=1, batch=2, report=steps.append)
    assert [(step.num_tokens, step.tokens_per_s) for step in steps] == [(20, 5.0), (20, 5.0)]


def test_without_learning_nothing_changes(episodes):
    taught = teach(learner(rate=0.0), episodes[:3], epochs=1, batch=4)
    assert taught.loss_before == taught.loss_after


def test_teaching_repeats(episodes):
    def losses(seed):
        steps = []
        teach(learner(), episodes[:4], epochs=1, batch=1, seed=seed, report=steps.append)
        return [step.loss for step in steps]

    assert losses(1) == losses(1) != losses(2)


def test_too_little_to_learn_from_is_refused(episodes):
    with pytest.raises(BadInput, match="at least 2 episodes"):
        teach(learner(), episodes[:1], epochs=1, batch=4)
    with pytest.raises(BadInput, match="at least 1"):
        teach(learner(), episodes, epochs=0, batch=4)


MANY = WarmupManifest(
    recipe="drzero",
    data="oracle",
    teacher="",
    base_model="tiny",
    roles=("solver",),
    style="full",
    hop_ratio=(1,),
    world_family="warmup",
    world_seed=1,
    num_articles=200,
    num_episodes=30,
    num_dropped={"a fact was not found": 2},
    num_held_out=3,
    num_steps=12,
    epochs=3,
    batch=8,
    learning_rate=1e-4,
    lora_rank=0,
    seed=0,
    loss_before=2.0,
    loss_after=1.0,
)


def test_a_folder_is_whole_and_replaced_only_on_request(tmp_path):
    from transformers import AutoModelForCausalLM

    out = tmp_path / "deep" / "warm"
    save_folder(tiny.model(seed=1), tiny.tokenizer(), out, MANY)
    assert msgspec.json.decode((out / MANIFEST).read_bytes(), type=WarmupManifest) == MANY
    assert json.loads((out / MANIFEST).read_text())["data"] == "oracle"
    with pytest.raises(BadInput, match="already"):
        save_folder(tiny.model(seed=2), tiny.tokenizer(), out, MANY)
    save_folder(tiny.model(seed=2), tiny.tokenizer(), out, structs.replace(MANY, seed=2), force=True)
    loaded = AutoModelForCausalLM.from_pretrained(out)
    assert (loaded.lm_head.weight == tiny.model(seed=2).lm_head.weight).all()
    assert [path.name for path in out.parent.iterdir()] == ["warm"]


def test_what_is_no_warm_up_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(BadInput, match="not replaced"):
            check_target(tmp_path, force)
    with pytest.raises(BadInput, match="not replaced"):
        check_target(tmp_path / "notes.txt", True)
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty", False)


def test_a_failed_write_leaves_nothing(tmp_path):
    class Broken:
        def named_parameters(self):
            return ()

        def save_pretrained(self, folder):
            (folder / "half").write_text("x")
            raise OSError(28, "No space left on device")

    with pytest.raises(BadInput, match="No space left"):
        save_folder(Broken(), tiny.tokenizer(), tmp_path / "warm", MANY)
    assert list(tmp_path.iterdir()) == []
