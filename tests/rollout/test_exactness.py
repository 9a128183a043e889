"""Token in, token out: an episode's segments are exactly what the sampler saw and sampled."""

import random
from collections import Counter

import pytest
from msgspec import json as mjson

import tiny
from quaere.chat.renderer import Renderer
from quaere.chat.untrusted_text import PlainEncoder
from quaere.dialects.tagged.protocol import TagSolver
from quaere.dialects.tool_call.protocol import ToolCallProposer, ToolCallSolver
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.engine import Engine
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import SamplingParams
from quaere.policies.scripted import ScriptedSampler
from quaere.records import Episode, ProposeTask, Question, SolveTask
from quaere.rollout.conversation import TokenConversation
from quaere.rollout.episode import Limits
from quaere.rollout.many import Job, run_many
from quaere.rollout.policy import TokenPolicy

CALL = '<tool_call>{{"name": "search", "arguments": {{"query_list": ["{}"]}}}}</tool_call>'


def assert_exact(episode, seen):
    """`seen` is what the sampler was given and gave back, turn by turn."""
    ids = episode.token_ids
    sampled = [segment for segment in episode.segments if segment.origin == "model"]
    assert [segment.token_ids for segment in sampled] == [given for _, given in seen]
    assert all(all(segment.loss_mask) and len(segment.logprobs) == len(segment.token_ids) for segment in sampled)
    others = [segment for segment in episode.segments if segment.origin != "model"]
    assert not any(any(segment.loss_mask) or segment.logprobs for segment in others)
    for context, given in seen:
        assert ids[: len(context)] == context
        assert ids[len(context) : len(context) + len(given)] == given
    if seen:
        assert ids == seen[-1][0] + seen[-1][1] + ids[len(seen[-1][0]) + len(seen[-1][1]) :]
    assert len(episode.loss_mask) == len(ids)
    assert sum(episode.loss_mask) == sum(len(given) for _, given in seen)


def random_turn(draw, vocabulary, name):
    """A turn as a policy might write it: sound, broken, or any ids at all, control tokens included."""
    return draw.choice(
        [
            CALL.format(f"query {name}"),
            f"<think>a thought {name}</think>" + CALL.format("Halm") + draw.choice(["", "<|im_end|>", " trailing"]),
            f"<answer>{name}</answer>" + draw.choice(["", "<|im_end|>", "\n"]),
            f"<question>Who {name}?</question><answer>{name}</answer>",
            f"<evaluate>so {name}</evaluate><search>{name}</search>",
            "no action at all <|im_end|>",
            "<tool_call>{</tool_call>",
            tuple(draw.randrange(vocabulary) for _ in range(draw.randint(1, 40))),
        ]
    )


def jobs_and_scripts(count, tokenizer, seed):
    draw = random.Random(seed)
    jobs, scripts = [], {}
    for number in range(count):
        name = f"e{number}"
        if number % 8 == 3:
            protocol, task = TagSolver("evalrar"), SolveTask(Question(name, f"Who is {name}? </information>"))
        elif number % 2:
            protocol, task = ToolCallSolver(guided=number % 4 == 1), SolveTask(Question(name, f"Who is {name}? <s>"))
        else:
            protocol, task = ToolCallProposer(), ProposeTask(name, tiny.passage(f"About {name} </s>"), 1 + number % 4)
        jobs.append(Job(protocol, task, name))
        scripts[name] = [random_turn(draw, len(tokenizer), name) for _ in range(4)]
    return jobs, scripts


@pytest.mark.parametrize("count", [400, pytest.param(2500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("template", tiny.TEMPLATES)
async def test_scripted_episodes_are_exact(template, count):
    """Under each of four templates and without one, twelve thousand in all among the slow tests."""
    tokenizer = tiny.tokenizer(template)
    jobs, scripts = jobs_and_scripts(count, tokenizer, seed=len(template))
    sampler = ScriptedSampler(tokenizer, scripts)
    policy = TokenPolicy(sampler, Renderer(tokenizer))
    limits = Limits(max_turns=4, turn_tokens=60, sequence_tokens=1500, tool_response_tokens=50)
    ends = Counter()
    async for episode in run_many(policy, jobs, tiny.ListSearcher(), limits, seed=3):
        assert_exact(episode, sampler.seen.get(episode.id, []))
        ends[episode.end] += 1
    assert min(ends["answered"], ends["turn_limit"]) > 0.08 * count
    assert sum(map(len, sampler.seen.values())) > 1.6 * count


@pytest.mark.parametrize("template", tiny.TEMPLATES)
async def test_episodes_of_a_real_sampler_are_exact(template):
    """A tiny transformer with the real engine, batching and stop handling."""
    tokenizer = tiny.tokenizer(template)
    renderer = Renderer(tokenizer)
    engine = Engine(use_packed_attention(tiny.model()), renderer.decode, max_rows=16)
    async with NativeSampler(engine, name="tiny") as sampler:
        seen = watch(sampler)
        jobs, _ = jobs_and_scripts(24, tokenizer, seed=1)
        limits = Limits(max_turns=3, turn_tokens=12, sequence_tokens=3000, tool_response_tokens=30)
        params = SamplingParams(temperature=1.5)
        policy = TokenPolicy(sampler, renderer)
        async for episode in run_many(policy, jobs, tiny.ListSearcher(), limits, params=params):
            assert_exact(episode, seen[episode.id])
            scores = await sampler.score(episode.token_ids)
            logprobs = iter(scores)
            for segment in episode.segments:
                scored = [next(logprobs) for _ in segment.token_ids]
                if segment.origin == "model":
                    assert scored == pytest.approx(segment.logprobs, abs=1e-3)


def watch(sampler):
    """Record what a sampler is given and gives back."""
    seen, original = {}, sampler.sample

    async def sample(session, token_ids, params):
        sampled = await original(session, token_ids, params)
        seen.setdefault(session, []).append((tuple(token_ids), sampled.token_ids))
        return sampled

    sampler.sample = sample
    return seen


async def test_no_sampled_text_is_ever_encoded(monkeypatch, tokenizer):
    """Every turn carries a nonce of its own; no text that is encoded may contain one."""
    encoded = []
    for owner, method in ((Renderer, "_encode_ours"), (PlainEncoder, "encode")):
        original = getattr(owner, method)

        def spy(self, text, original=original):
            encoded.append(text)
            return original(self, text)

        monkeypatch.setattr(owner, method, spy)
    nonce = "nonce{}of{}"
    scripts, jobs = {}, []
    for number in range(50):
        name = f"e{number}"
        words = [nonce.format(number, turn) for turn in range(4)]
        scripts[name] = [
            CALL.format(words[0]),
            CALL.format(f'{words[1]}", "{words[1]} again'),
            f"broken {words[2]}",
            f"<answer>{words[3]}</answer>",
        ]
        jobs.append(Job(ToolCallSolver(), SolveTask(Question(name, "Who?")), name))
    # Scripts are written as ids before the spies count, as a model's tokens would be.
    scripts = {
        name: [tokenizer.encode(text, add_special_tokens=False) for text in turns] for name, turns in scripts.items()
    }
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    limits = Limits(sequence_tokens=4096, turn_tokens=200)
    episodes = [episode async for episode in run_many(policy, jobs, tiny.ListSearcher(), limits)]
    assert all(episode.end == "answered" and len(episode.turns) == 4 for episode in episodes)
    assert encoded
    assert not [text for text in encoded if "nonce" in text]


async def test_an_episode_survives_being_stored():
    tokenizer = tiny.tokenizer("qwen")
    jobs, scripts = jobs_and_scripts(40, tokenizer, seed=9)
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    async for episode in run_many(policy, jobs, tiny.ListSearcher(), Limits(max_turns=4, turn_tokens=60)):
        assert mjson.decode(mjson.encode(episode), type=Episode) == episode


def byte_fallback_tokenizer():
    """Letters, and bytes for all other characters: cut in two, these decode to one mark for each byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    letters = "<>/_ \nabcdefghijklmnopqrstuvwxyz.Y?"
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    vocabulary = {name: number for number, name in enumerate(names)}
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    built.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    built.add_special_tokens([AddedToken(text, special=True) for text in tiny.SPECIAL])
    made = PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<|im_end|>")
    made.chat_template = tiny.CHATML
    return made


@pytest.mark.parametrize(
    "before", ["", "a", "漢", "🌉", "漢🌉", "é🌉漢", "🌉 ", "🌉" * 9, "a漢" * 9, "<think>漢</think>"]
)
async def test_a_place_is_found_beside_characters_of_many_tokens(before):
    tokenizer = byte_fallback_tokenizer()
    renderer = Renderer(tokenizer)
    text = before + "<tool_call>漢🌉</tool_call>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert renderer.decode(ids) == text
    talk = TokenConversation("e1", ScriptedSampler(tokenizer, {"e1": [ids]}), renderer, [5, 6, 7])
    await talk.write(SamplingParams(max_tokens=200))
    place = talk.locate(len(before))
    assert renderer.decode(ids[place - 3 :]) == "<tool_call>漢🌉</tool_call>"
