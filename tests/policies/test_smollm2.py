"""The real model of the catalogue: batching, log-probs and whole episodes against plain transformers, in float32.

The suite has its first layers alone, which batch and count like all of them; the slow tests have the whole.
"""

import asyncio
import copy
import json
import random
from functools import cache
from pathlib import Path

import pytest
import torch

import tiny
from quaere.chat.protocol import Message, Quoted
from quaere.chat.renderer import Renderer
from quaere.dialects.tool_call import ToolCallSolver
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model
from quaere.policies.native.engine import Engine
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import SamplingParams
from quaere.records import Question, SolveTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenPolicy

pytestmark = pytest.mark.model

NUM_LAYERS = 2
# Where the two best tokens are closer than this in log-prob, rounding may choose either.
TIE = 1e-3

TEXT = """\
The river runs past a town where an old guild of ropers keeps its ledgers, and every spring a ship is named after
somebody who never saw the sea, because their mother had told them about the storms of the north coast."""
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def path():
    return resolve_model("smollm2-135m").path


@pytest.fixture(scope="module")
def tokenizer(path):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path)


@pytest.fixture(scope="module")
def shorten(path, tmp_path_factory):
    """A folder in which the model has this many of its layers, or all."""

    @cache
    def shorten(num_layers):
        if not num_layers:
            return path
        folder = tmp_path_factory.mktemp("first-layers")
        for file in Path(path).iterdir():
            (folder / file.name).symlink_to(file)
        config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": num_layers}
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return shorten


@pytest.fixture(scope="module")
def load_plain(shorten):
    """The model of transformers, with this many of its layers or all."""
    from transformers import AutoModelForCausalLM

    @cache
    def load(num_layers):
        return AutoModelForCausalLM.from_pretrained(shorten(num_layers), dtype=torch.float32).eval()

    return load


@pytest.fixture(scope="module")
def load_engine(shorten, tokenizer):
    """Ours with as many."""

    @cache
    def load(num_layers):
        return NativeSampler.over(
            load_model(shorten(num_layers), "cpu", "float32"), tokenizer.decode, name="smollm2", max_rows=32
        ).engine

    return load


def plain_logprobs(model, ids):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), -1)


def ragged_prompts(tokenizer, count, longest):
    draw = random.Random(64)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]
    return [tokenizer.encode(text) for text in texts]


@pytest.mark.parametrize(
    ("count", "longest", "max_tokens", "num_layers"),
    [(4, 30, 3, NUM_LAYERS), pytest.param(64, 90, 12, 0, marks=pytest.mark.slow)],
)
async def test_ragged_prompts_batched_as_one_at_a_time(
    load_engine, tokenizer, load_plain, count, longest, max_tokens, num_layers
):
    """Half of them fit at once; the others join as rows are done."""
    engine, plain = load_engine(num_layers), load_plain(num_layers)
    prompts = ragged_prompts(tokenizer, count, longest)
    params = SamplingParams(max_tokens=max_tokens, temperature=0)
    half = Engine(engine.model, tokenizer.decode, max_rows=count // 2)
    async with NativeSampler(half, name="smollm2") as sampler:
        together = await asyncio.gather(*(sampler.sample(str(n), ids, params) for n, ids in enumerate(prompts)))
        alone = [await sampler.sample(str(n), ids, params) for n, ids in enumerate(prompts)]
    num_ties = 0
    for prompt, batched, single in zip(prompts, together, alone, strict=True):
        rows = plain_logprobs(plain, [*prompt, *batched.token_ids])[len(prompt) - 1 : -1]
        expected = rows.gather(1, torch.tensor(batched.token_ids)[:, None])[:, 0]
        assert (torch.tensor(batched.logprobs) - expected).abs().max() < 1e-3
        for position, (ours, theirs) in enumerate(zip(batched.token_ids, single.token_ids, strict=True)):
            if ours != theirs:
                best, second = rows[position].topk(2).values
                assert best - second < TIE
                num_ties += 1
                break
    assert num_ties <= max(1, count // 20)


class ShortSolver(ToolCallSolver):
    """The real protocol with a prompt of a few words, so that 200 episodes take minutes and a few take seconds."""

    tools = ()

    def opening(self, task):
        return [Message("system", ("Search or answer.",)), Message("user", (Quoted(task.question.text),))]


TEMPLATES = ("own", "qwen", "gemma-like", "none")


@pytest.mark.parametrize(
    ("template", "count", "turn_tokens", "num_layers"),
    [
        *((template, 2, 6, NUM_LAYERS) for template in ("own", "gemma-like")),
        *(pytest.param(template, 67, 12, 0, marks=pytest.mark.slow) for template in TEMPLATES),
    ],
)
async def test_episodes_are_exact_under_three_templates_and_without_one(
    load_engine, tokenizer, template, count, turn_tokens, num_layers
):
    """What the engine saw and sampled is compared with the episode's segments; 268 episodes among the slow tests."""
    # The control tokens of the third template are not in this vocabulary: then they are ordinary text.
    templates = {"own": tokenizer.chat_template, "qwen": tiny.QWEN, "gemma-like": tiny.GEMMA, "none": None}
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = templates[template]
    renderer = Renderer(tokenizer)
    assert renderer.has_template == (template != "none")
    jobs = [Job(ShortSolver(guided=n % 2 == 0), SolveTask(Question(f"e{n}", f"Who wrote {n}?"))) for n in range(count)]
    limits = Limits(max_turns=2, turn_tokens=turn_tokens, tool_response_tokens=24)
    async with NativeSampler(load_engine(num_layers), name="smollm2") as sampler:
        seen, original = {}, sampler.sample

        async def sample(session, token_ids, params):
            sampled = await original(session, token_ids, params)
            seen.setdefault(session, []).append((tuple(token_ids), sampled.token_ids))
            return sampled

        sampler.sample = sample
        policy = TokenPolicy(sampler, renderer)
        async for episode in run_many(policy, jobs, tiny.ListSearcher(), limits, seed=1):
            model = [segment for segment in episode.segments if segment.origin == "model"]
            assert [segment.token_ids for segment in model] == [given for _, given in seen[episode.id]]
            for context, given in seen[episode.id]:
                assert episode.token_ids[: len(context) + len(given)] == context + given
            assert sum(episode.loss_mask) == sum(len(given) for _, given in seen[episode.id])
            assert all(all(segment.loss_mask) for segment in model)
    assert len(seen) == count


async def test_special_tokens_in_documents_stay_text(tokenizer):
    renderer = Renderer(tokenizer)
    hostile = "".join(entry.content for entry in tokenizer.added_tokens_decoder.values())
    ids = renderer.encode_parts((Quoted(hostile),))
    assert set(ids).isdisjoint(tokenizer.added_tokens_decoder)
    assert renderer.decode(ids) == hostile
