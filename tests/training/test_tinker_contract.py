"""Our side of the Tinker interface against exchanges recorded with a real SkyRL server, one recording per SDK."""

import asyncio
import base64
import importlib.util
import json
import math
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs

from quaere.errors import TrainingStopped
from quaere.policies.tinker import TinkerService
from quaere.training.batches import Sample
from quaere.training.remote_actors import RemoteRole, SavedState, fetch_adapter, read_archive, read_state, write_adapter
from quaere.training.settings import LearnerSettings, TrainerSettings
from quaere.training.tinker_learner import TinkerLearner
from tinker_exchanges import FIXTURES, Replayer, play

RECORDINGS = sorted(FIXTURES.glob("tinker-*.json"))
needs_sdk = pytest.mark.skipif(importlib.util.find_spec("tinker") is None, reason="the tinker SDK is not installed")


def recording():
    """The one made with the SDK that is installed, else the newest."""
    own = FIXTURES / f"tinker-{version('tinker')}.json"
    return json.loads((own if own.is_file() else RECORDINGS[-1]).read_text())


def test_there_are_recordings_of_the_oldest_and_the_newest_sdk():
    versions = [json.loads(path.read_text())["sdk"] for path in RECORDINGS]
    assert [name.rpartition(".")[0] for name in versions] == ["0.25", "0.35", "0.36"]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """The conversation once more: the server that gave its recorded answers, what was made of them, and its folder."""
    folder = tmp_path_factory.mktemp("replayed")
    with Replayer(recording()["exchanges"]) as server:
        made = play(server.url, str, folder)
    return server, made, folder


@needs_sdk
def test_the_conversation_is_asked_and_understood_as_it_was_with_the_server(replayed):
    server, made, folder = replayed
    assert json.loads(json.dumps(made)) == recording()["made"]
    assert server.unknown == []
    assert server.asked
    for wanted, asked in server.asked:
        assert asked == wanted
    described = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert (described["r"], described["lora_alpha"], described["base_model_name_or_path"]) == (4, 32, "base")
    layers = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert described["target_modules"] == layers


@needs_sdk
def test_what_nothing_names_any_longer_is_deleted_on_the_server(replayed):
    """The download's weights, each sampler's but for the last, and the state that only dropped the moments."""
    server, _, _ = replayed
    kinds = [path.partition("/")[0] for path in server.deleted]
    assert kinds == ["sampler_weights"] * 4 + ["weights"]
    assert server.deleted[0] == "sampler_weights/quaere-0"  # the download's
    assert server.deleted[-1] == "weights/quaere-2"  # quaere-1 is the caller's, as those of checkpoints are


@needs_sdk
def test_the_updates_of_the_recording_moved_the_policy():
    made = recording()["made"]
    assert made["first"]["gradient/norm"] > 0
    assert made["second"]["policy/entropy"] != made["first"]["policy/entropy"]
    assert made["first"]["loss/kl"] == pytest.approx(0, abs=1e-6)  # a new adapter is the base
    assert made["second"]["loss/kl"] > 0
    assert made["scored"][0][4:] == pytest.approx(made["logprobs"], abs=1e-4)
    assert made["again"][0][4:] != pytest.approx(made["logprobs"], abs=1e-4)  # the newest weights


@needs_sdk
def test_a_server_that_is_lost_ends_in_one_line(monkeypatch):
    monkeypatch.setattr("quaere.policies.tinker._LOOK_S", 0.05)
    with pytest.raises(TrainingStopped, match=r"the trainer at http://127.0.0.1:9 has not answered for \d+ s"):
        TinkerService("http://127.0.0.1:9", patience_s=0.2).models()


@needs_sdk
async def test_a_server_that_is_lost_while_many_wait_ends_each_in_one_line(monkeypatch):
    monkeypatch.setattr("quaere.policies.tinker._LOOK_S", 0.05)
    with Replayer(recording()["exchanges"]) as server:
        service = TinkerService(server.url, patience_s=0.2)
    async with asyncio.timeout(30):  # never reached: nothing else would end a request without an answer
        with pytest.raises(TrainingStopped, match=r"the trainer at http://127.0.0.1:\d+ has not answered for \d+ s"):
            await service.wait(future := Future())
    assert future.cancelled()


@needs_sdk
async def test_a_request_whose_caller_is_interrupted_is_dropped():
    with Replayer(recording()["exchanges"]) as server:
        service, future = TinkerService(server.url, patience_s=30), Future()
        waiting = asyncio.create_task(service.wait(future))
        await asyncio.sleep(0)
        assert waiting.cancel() and not future.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert future.cancelled()


@needs_sdk
def test_a_state_that_the_server_does_not_have_ends_in_one_line():
    """A server whose folder is gone, or another one: it does not know the state of the last checkpoint."""
    kept = [one for one in recording()["exchanges"] if "weights_info" not in one["key"]]
    with Replayer(kept) as server:
        service = TinkerService(server.url, patience_s=30)
        role = RemoteRole(service, "m", rank=4, seed=3)
        role.go_back("tinker://model_1/weights/quaere-1")
        with pytest.raises(
            TrainingStopped, match="does not have the state tinker://model_1/weights/quaere-1"
        ) as caught:
            role.client.get_info()
    assert "quaere export RUN --merge --out DIR" in caught.value.hint


def test_an_export_of_the_hosted_service_is_read_file_by_file():
    """The client is the SDK's as its source describes it: the service was never asked."""
    files = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights", "README.md": b"more"}
    body = {name: base64.b64encode(content).decode() for name, content in files.items()}
    served = [{"key": f"GET /{name}", "status": 200, "headers": {}, "body": body[name]} for name in files]
    saved, deleted = [], []
    with Replayer(served) as server:
        urls = {f"weights/{name}": f"{server.url}/{name}" for name in files}

        def save(name, ttl_seconds):
            saved.append((name, ttl_seconds))
            return SimpleNamespace(result=lambda: SimpleNamespace(path=f"tinker://run/external_weights/{name}"))

        asked = SimpleNamespace(result=lambda: SimpleNamespace(urls=urls))
        service = SimpleNamespace(
            url="",
            call=lambda request: request(),
            rest=SimpleNamespace(get_external_weights_urls=lambda path: asked),
            delete_saved=deleted.append,
        )
        found = fetch_adapter(service, SimpleNamespace(save_weights_external=save), "quaere-1")
    assert found == {name: files[name] for name in ("adapter_config.json", "adapter_model.safetensors")}
    assert saved == [("quaere-1", 3600)]
    assert deleted == ["tinker://run/external_weights/quaere-1"]


@pytest.mark.parametrize(("chosen", "factor"), [("sum", 1.0), ("sequence_mean", 4 * 2)])
def test_the_normalisation_that_is_set_is_the_servers(chosen, factor):
    """Two data of four targets each; two of a datum's five tokens carry loss, in a batch of four such tokens."""
    samples = [Sample((1, 2, 3, 4, 5), (False, False, False, True, True), (0.0,) * 5, (0.0,) * 3 + (1.0, -2.0))] * 2
    types = SimpleNamespace(Datum=SimpleNamespace, ModelInput=SimpleNamespace(from_ints=list))
    role = SimpleNamespace(service=SimpleNamespace(types=types))
    trainer = TrainerSettings(loss_normalisation=chosen)
    learner = TinkerLearner(role, LearnerSettings(), reference=None, trainer=trainer)
    policy, advantages = [np.array([-0.5, -0.25])] * 2, [np.array([1.0, -2.0])] * 2
    first, _ = learner._for_server(samples, policy, advantages, [1 / 4] * 2)
    assert first.model_input == [1, 2, 3, 4]
    assert first.loss_fn_inputs["target_tokens"] == [2, 3, 4, 5]
    assert first.loss_fn_inputs["logprobs"] == [0.0, 0.0, -0.5, -0.25]
    assert first.loss_fn_inputs["advantages"] == [0.0, 0.0, factor / 4, -factor / 2]


def scoring_learner(logprobs, sent):
    """A learner whose server says this of one datum, and keeps what it is sent."""

    def forward(data, loss):
        sent.extend(data)
        answer = SimpleNamespace(metrics={}, loss_fn_outputs=[{"logprobs": np.array(logprobs)}])
        return SimpleNamespace(result=lambda: answer)

    types = SimpleNamespace(Datum=SimpleNamespace, ModelInput=SimpleNamespace(from_ints=list))
    service = SimpleNamespace(types=types, call=lambda request: request())
    role = SimpleNamespace(service=service, client=SimpleNamespace(forward=forward))
    return TinkerLearner(role, LearnerSettings(), reference=None)


UNPAID = Sample((1, 2, 3, 4, 5), (False,) * 5, (0.0,) * 5, (0.0,) * 5)
PAID = structs.replace(UNPAID, loss_mask=(False, False, True, True, False), advantages=(0.0, 0.0, 1.0, 1.0, 0.0))


def test_one_token_without_a_finite_log_prob_ends_an_update():
    with pytest.raises(TrainingStopped, match="not finite; no weight was changed"):
        scoring_learner([-0.5, -0.25, math.nan], []).step([PAID])


def test_scores_are_asked_for_up_to_the_last_token_that_carries_loss():
    sent = []
    assert scoring_learner([-0.5, -0.25, -0.125], sent).score([UNPAID, PAID]) == [[], [-0.25, -0.125]]
    (datum,) = sent
    assert datum.model_input == [1, 2, 3]
    assert datum.loss_fn_inputs == {"target_tokens": [2, 3, 4], "weights": [1.0, 1.0, 1.0]}


def test_a_reference_scores_samples_without_loss_as_nothing():
    """A KL term over flat samples reaches those in which nothing carries loss."""
    asked = []

    async def score_many(sequences):
        asked.extend(sequences)
        return [[-float(token) for token in tokens] for tokens in sequences]

    role = SimpleNamespace(service=SimpleNamespace(call=lambda request: request()))
    learner = TinkerLearner(role, LearnerSettings(), reference=SimpleNamespace(score_many=score_many))
    assert learner.score_reference([UNPAID, PAID]) == [[], [-3.0, -4.0]]
    assert asked == [[1, 2, 3, 4, 5], [1, 2, 3, 4]]


@pytest.mark.parametrize(("warmup_steps", "rates"), [(0, [0.5, 0.5]), (1, [0.5, 0.5]), (4, [0.125, 0.25])])
def test_the_rate_of_an_update_and_the_norm_that_the_server_reports(warmup_steps, rates):
    """Of the server's figures only that of the gradient is taken for one."""
    sent, steps = [], []

    def optim_step(adam):
        steps.append(adam)
        metrics = {"clock_cycle": 7.0, "skyrl.ai/grad_norm": 0.25}
        return SimpleNamespace(result=lambda: SimpleNamespace(metrics=metrics))

    learner = scoring_learner([-0.5, -0.25, -0.125], sent)
    learner.settings, learner.warmup_steps = LearnerSettings(learning_rate=0.5), warmup_steps
    learner._service.types.AdamParams = SimpleNamespace
    learner._role.client.optim_step = optim_step
    learner._role.client.forward_backward = lambda data, loss: SimpleNamespace(result=lambda: sent.extend(data))
    metrics = [learner.step([PAID]) for _ in rates]
    assert [one["learner/rate"] for one in metrics] == [adam.learning_rate for adam in steps] == rates
    assert [one["gradient/norm"] for one in metrics] == [0.25, 0.25]
    assert learner._role.has_stepped


def test_an_archive_that_is_none_ends_in_one_line(tmp_path):
    with pytest.raises(TrainingStopped, match="archive of an adapter cannot be read"):
        read_archive(b"no archive")
    with pytest.raises(TrainingStopped, match=r"gave as an adapter cannot be read: 'adapter_model\.safetensors'"):
        write_adapter({"adapter_config.json": b"{}"}, tmp_path / "adapter", "base")
    assert not (tmp_path / "adapter").exists()


def test_a_checkpoint_of_a_local_run_has_no_state(tmp_path):
    from quaere.errors import BadInput

    with pytest.raises(BadInput, match="was not written by a trainer"):
        read_state(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"path": ')
    with pytest.raises(BadInput, match=r"trainer_state\.json cannot be read"):
        read_state(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"path": "tinker://m/weights/a", "url": "http://h"}')
    assert read_state(tmp_path) == SavedState("tinker://m/weights/a", "http://h")


def test_recordings_are_small():
    assert all(Path(path).stat().st_size < 400_000 for path in RECORDINGS)
