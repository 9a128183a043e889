"""Token in, token out: an episode's segments are exactly what the sampler saw and sampled."""

import pytest
from msgspec import json as mjson

import tiny
from exact_episodes import CALL, NUM_KINDS, assert_exact, jobs_and_scripts
from quaere.chat.renderer import PlainEncoder, Renderer
from quaere.dialects.tool_call import ToolCallSolver
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.engine import Engine
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Question, SolveTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenConversation, TokenPolicy
from scripted import ScriptedSampler


@pytest.mark.parametrize("template", tiny.TEMPLATES)
async def test_episodes_of_a_real_sampler_are_exact(template):
    """A tiny transformer with the real engine, batching and stop handling."""
    tokenizer = tiny.tokenizer(template)
    renderer = Renderer(tokenizer)
    engine = Engine(use_packed_attention(tiny.model()), renderer.decode, max_rows=3)
    async with NativeSampler(engine, name="tiny") as sampler:
        seen = watch(sampler)
        jobs, _ = jobs_and_scripts(NUM_KINDS, tokenizer, seed=1)
        first = 2 * list(tiny.TEMPLATES).index(template)  # each kind of episode under two of the templates
        jobs = [jobs[(first + place) % NUM_KINDS] for place in range(4)]
        limits = Limits(max_turns=2, turn_tokens=8, sequence_tokens=3000, tool_response_tokens=30)
        params = SamplingParams(temperature=1.5)
        policy = TokenPolicy(sampler, renderer)
        async for episode in run_many(policy, jobs, tiny.ListSearcher(), limits, params=params):
            assert_exact(episode, seen[episode.id])
            scores = (await sampler.score_many([episode.token_ids]))[0]
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
    for number in range(10):
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
