"""A server with vLLM's wire as a sampler: the turns and scores of the native one; anything less is refused."""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response
from starlette.routing import Route

import tiny
from quaere.errors import SamplingFailed, TrainingStopped
from quaere.policies import vllm
from quaere.policies.sampler import SamplingParams, StopStrings
from quaere.policies.vllm import (
    ServedModel,
    VllmSampler,
    VllmServer,
    read_scores,
    read_turn,
    score_request,
    turn_request,
)
from quaere.rollout.policy import open_policy
from quaere.training.adapters import add_adapters
from quaere.training.learner import save_weights
from quaere.training.settings import AdapterSettings
from sampling_server import serve_routes, serve_samples

TOKENIZER = tiny.tokenizer()
PROMPT = TOKENIZER.encode("Orsolya Venn built the Halm bridge", add_special_tokens=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "model"
    tiny.model("llama").save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def served(model):
    with serve_samples(model) as (server, url):
        yield server, url


@pytest.fixture
def sampler(served, tmp_path):
    return VllmSampler(VllmServer(served[1]), "base", TOKENIZER.decode, folder=tmp_path, max_positions=512)


def playing(sampler, play):
    """What a coroutine returns; the sampler is stopped after it."""

    async def run():
        try:
            return await play(sampler)
        finally:
            await sampler.stop()

    return asyncio.run(run())


def write_adapter(folder, seed=0):
    """An adapter that changes what is sampled."""
    import torch

    adapted = add_adapters(tiny.model("llama"), ("solver",), AdapterSettings(rank=4))
    torch.manual_seed(seed)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    save_weights(adapted, folder, "solver")


CASES = [SamplingParams(max_tokens=12, seed=seed, temperature=heat) for seed, heat in ((7, 1.0), (8, 0.7), (9, 0.0))]
CASES += [SamplingParams(max_tokens=30, seed=3, top_k=5), SamplingParams(max_tokens=30, seed=4, top_p=0.5)]
CASES += [SamplingParams(max_tokens=200, seed=5, stop=("e",)), SamplingParams(max_tokens=200, stop_token_ids=(5, 9))]


def test_turns_and_scores_are_those_of_the_native_sampler(model, sampler):
    async def play(sampler):
        turns = [sampler.sample("s", PROMPT, params) for params in CASES]
        return await asyncio.gather(*turns), await sampler.score_many([PROMPT, PROMPT[:3]], [2, 1])

    (turns, scores), (own, expected) = (
        playing(one, play) for one in (sampler, open_policy(str(model), device="cpu", dtype="float32").sampler)
    )
    for turn, native in zip(turns, own, strict=True):
        assert (turn.token_ids, turn.stop_reason) == (native.token_ids, native.stop_reason)
        assert turn.logprobs == pytest.approx(native.logprobs, abs=1e-5)
    assert {turn.stop_reason for turn in turns} == {"length", "stop_string", "end_of_turn"}
    assert scores[0] == pytest.approx(expected[0], abs=1e-5)
    assert scores[0][:2] == [0.0, 0.0]
    assert scores[1] == pytest.approx(expected[1], abs=1e-5)


def test_a_request_leaves_nothing_to_the_servers_own_settings(served, sampler):
    playing(sampler, lambda sampler: sampler.sample("s", PROMPT, CASES[0]))
    asked = served[0].asked[-1]
    assert asked["prompt"] == PROMPT
    assert asked["return_token_ids"] is True
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "ignore_eos": True}
    neutral |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "skip_special_tokens": False, "seed": 7}
    assert {name: asked[name] for name in neutral} == neutral


def test_an_adapter_is_loaded_under_a_new_name_and_the_one_before_it_goes(served, sampler, tmp_path):
    server = served[0]

    async def play(sampler):
        turns = [await sampler.sample("s", PROMPT, CASES[0])]
        for seed in (1, 2):
            sampler.use("solver", lambda folder, seed=seed: write_adapter(folder, seed))
            turns.append(await sampler.sample("s", PROMPT, CASES[0]))
            assert len(server.adapters) == 1
            assert len(list(tmp_path.glob(".quaere-adapters*/*"))) == 1
        sampler.use("solver")  # the same again
        turns.append(await sampler.sample("s", PROMPT, CASES[0]))
        return turns

    base, first, second, again = playing(sampler, play)
    assert len({one.logprobs[0] for one in (base, first, second)}) == 3
    assert again == second
    assert len(set(server.loaded[-2:])) == 2
    assert all(re.fullmatch(r"quaere-[0-9a-f]{8}-solver-\d", name) for name in server.loaded)
    assert server.adapters == {}
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_behind_goes_with_the_next_adapter(served, sampler, tmp_path):
    server, url = served
    dead, other = tmp_path / ".quaere-adapters.partial-0123456789abcdef" / "quaere-1", tmp_path / "theirs" / "b"
    for name, folder in (("old", dead), ("theirs", other)):
        write_adapter(folder)
        VllmServer(url).load_adapter(name, folder)

    async def play(sampler):
        sampler.use("solver", write_adapter)
        return set(server.adapters)

    assert playing(sampler, play) == {"theirs", server.loaded[-1]}
    assert not dead.parent.exists()
    VllmServer(url).unload_adapter("theirs")
    VllmServer(url).unload_adapter("theirs")  # what is not there is no error


# ------------------------------------------------------------------------------------------------- the real server


@pytest.fixture
def recorded():
    """What vLLM 0.32.0 answered, on a CPU, for a tiny model; it answers the same requests in the same order only."""
    said = json.loads((Path(__file__).parent / "vllm_recording.json").read_text())
    assert said["vllm"] == "0.32.0"
    left = said["exchanges"]

    async def answer(request):
        expected, body = left.pop(0), await request.body()
        assert (request.method, request.url.path) == (expected["method"], f"/v1/{expected['path']}")
        assert (json.loads(body) if body else None) == expected["body"]
        reply = expected["reply"]
        return Response(reply if isinstance(reply, str) else json.dumps(reply), expected["status"])

    with serve_routes([Route("/v1/{path:path}", answer, methods=["GET", "POST"])]) as url:
        yield VllmServer(url)
    assert left == []


def test_the_real_server_answers_as_it_is_read(recorded):
    server = recorded
    prompt = tiny.tokenizer("qwen").encode("Orsolya Venn built the Halm bridge", add_special_tokens=False)

    def turn(params, model="base", sent=prompt):
        content = server.ask("POST", "completions", turn_request(model, sent, params))
        return read_turn(content, sent, params, StopStrings(TOKENIZER.decode))

    assert server.models() == [ServedModel("base", root="/models/base", max_model_len=1024)]
    server.require_adapters()
    few = SamplingParams(max_tokens=6, seed=7)
    base = turn(few)
    assert (len(base.token_ids), len(base.logprobs), base.stop_reason) == (6, 6, "length")
    stopped = turn(SamplingParams(max_tokens=60, seed=5, stop=("e",)))
    assert stopped.stop_reason == "stop_string" and "e" in TOKENIZER.decode(stopped.token_ids[-1:])
    ended = turn(SamplingParams(max_tokens=60, seed=5, stop_token_ids=stopped.token_ids[4:5]))
    assert (ended.stop_reason, ended.token_ids) == ("end_of_turn", stopped.token_ids[:5])
    scores = read_scores(server.ask("POST", "completions", score_request("base", prompt)), prompt)
    assert len(scores) == len(prompt) and scores[0] == 0.0 and max(scores[1:]) < -1

    with pytest.raises(TrainingStopped, match=r"status 404: .*No adapter found for /nowhere") as unseen:
        server.load_adapter("one", Path("/nowhere"))
    assert unseen.value.hint.startswith("does it see this path")
    server.load_adapter("one", Path("/shared/adapter"))
    with pytest.raises(TrainingStopped, match="has already been loaded"):
        server.load_adapter("one", Path("/shared/adapter"))
    assert server.models()[1] == ServedModel("one", root="/shared/adapter", parent="base")
    adapted = turn(few, "one")
    assert adapted.logprobs[0] != base.logprobs[0]
    server.unload_adapter("one")
    server.unload_adapter("one")
    with pytest.raises(TrainingStopped, match="status 404: The model `one` does not exist"):
        turn(few, "one")
    with pytest.raises(TrainingStopped, match="status 400: This model's maximum context length is 1024"):
        turn(few, sent=[5] * 1030)


# ----------------------------------------------------------------------------------------------------------- refusals

SENT = [5, 7, 9]
ANSWER = {"token_ids": [3, 2], "prompt_token_ids": SENT, "logprobs": {"token_logprobs": [-0.5, -1.5]}}
ANSWER |= {"prompt_logprobs": [None, {"7": {"logprob": -1.0}, "8": {"logprob": -0.1}}, {"9": {"logprob": -2.0}}]}
ANSWER |= {"finish_reason": "stop"}


def read(params=SamplingParams(max_tokens=4, stop_token_ids=(2,)), **changes):  # noqa: B008 (frozen)
    content = json.dumps({"choices": [ANSWER | changes]}).encode()
    return read_turn(content, SENT, params, StopStrings(str)), read_scores(content, SENT)


def test_an_answer_by_hand():
    turn, scores = read()
    assert (turn.token_ids, turn.logprobs, turn.stop_reason) == ((3, 2), (-0.5, -1.5), "end_of_turn")
    assert scores == [0.0, -1.0, -2.0]


def test_a_turn_that_the_server_ends_at_an_id_of_its_own_has_ended():
    assert read(SamplingParams(max_tokens=4))[0].stop_reason == "end_of_turn"
    assert read(SamplingParams(max_tokens=4), finish_reason="length")[0].stop_reason == "length"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token_ids": None}, "returns no token ids"),
        ({"prompt_token_ids": None}, "returns no token ids"),
        ({"prompt_token_ids": [1, *SENT]}, "sampled after other ids than it was sent"),
        ({"prompt_token_ids": SENT[1:]}, "sampled after other ids than it was sent"),
        ({"logprobs": None}, "returns no log-probs of what it samples"),
        ({"logprobs": {"token_logprobs": [-0.5, None]}}, "returns no log-probs of what it samples"),
        ({"prompt_logprobs": None}, "returns no log-probs of a prompt"),
        ({"prompt_logprobs": ANSWER["prompt_logprobs"][:2]}, "returns no log-probs of a prompt"),
        ({"prompt_logprobs": [None, {"8": {"logprob": -1.0}}, None]}, "returns no log-probs of a prompt"),
        ({"token_ids": "3 2"}, "the engine's answer cannot be read: Expected"),
    ],
)
def test_an_answer_without_what_is_needed_is_refused(changes, said):
    with pytest.raises(TrainingStopped, match=said):
        read(**changes)


def test_a_context_that_is_too_long_is_not_sent(served, sampler):
    before = len(served[0].asked)
    with pytest.raises(SamplingFailed, match="exceeds the model's context length of 512"):
        playing(sampler, lambda sampler: sampler.sample("s", [5] * 510, SamplingParams(max_tokens=3)))
    assert len(served[0].asked) == before


def test_what_the_server_says_is_shown_without_the_key(served, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sekrit")
    with pytest.raises(TrainingStopped, match=r"status 404: The lora adapter '\*\*\*' cannot be found"):
        VllmServer(served[1]).ask("POST", "unload_lora_adapter", {"lora_name": "sekrit"})


def test_a_server_that_wants_another_key_says_so():
    reply = httpx.Response(401, json={"error": "Unauthorized"})
    with pytest.raises(TrainingStopped, match="answered with status 401: Unauthorized") as caught:
        VllmServer("http://127.0.0.1:9")._content(reply, "")
    assert caught.value.hint == "OPENAI_API_KEY must be the key of the server"


def test_a_server_that_is_lost_ends_in_one_line(sampler, monkeypatch):
    monkeypatch.setattr(vllm, "_LOOK_S", 0.05)
    sampler._server = VllmServer("http://127.0.0.1:9", patience_s=0.2)
    with pytest.raises(TrainingStopped, match=r"the engine at http://127.0.0.1:9/v1 has not answered for \d+ s"):
        playing(sampler, lambda sampler: sampler.sample("s", PROMPT, CASES[0]))


def test_a_connection_that_breaks_is_tried_again(served, sampler, monkeypatch):
    monkeypatch.setattr(vllm, "_LOOK_S", 0.01)
    good, sampler._server.url = sampler._server.url, "http://127.0.0.1:9/v1"

    async def play(sampler):
        waiting = asyncio.ensure_future(sampler.sample("s", PROMPT, CASES[0]))
        await asyncio.sleep(0.2)
        sampler._server.url = good
        return await waiting

    assert len(playing(sampler, play).token_ids) == CASES[0].max_tokens


def test_an_answer_that_cannot_be_unpacked_stops_the_training_in_one_line(tmp_path):
    async def damage(request):
        return Response(b"no gzip", headers={"content-encoding": "gzip"})

    routes = [Route("/v1/completions", damage, methods=["POST"]), Route("/v1/models", damage)]
    with serve_routes(routes) as url:
        sampler = VllmSampler(VllmServer(url), "base", TOKENIZER.decode, folder=tmp_path)
        with pytest.raises(TrainingStopped, match="cannot be read"):
            playing(sampler, lambda sampler: sampler.sample("e1", PROMPT, SamplingParams(max_tokens=2)))
