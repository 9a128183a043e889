"""The evidence verifier: what it reads from episodes, what it computes from log-probs, and that both agree."""

import asyncio
import itertools
import math
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import tiny
from properties import examples
from quaere.chat.renderer import Renderer
from quaere.dialects.closed_book import ClosedBook
from quaere.errors import BadInput, SamplingFailed
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import ChatReply, Sampled
from quaere.records import Answer, Episode, Failure, Malformed, Support, Turn
from quaere.rollout.episode import run_many
from quaere.rollout.policy import ChatPolicy, TokenPolicy
from quaere.search.searcher import NoSearcher
from quaere.training.actors import copy_weights
from quaere.training.batches import Sample
from quaere.training.evidence import (
    Claim,
    VerifierSettings,
    open_hosted,
    read_supports,
    score_supports,
    verification_jobs,
    verify_claims,
)
from quaere.training.learner import Learner
from quaere.training.settings import LearnerSettings

CLAIM = Claim("c1", "Who built the bridge?", ("Venn",), "Venn built the bridge.")
TURN = Turn(0, "<answer>Venn</answer>", Answer("Venn"), "stop_string")
RIGHT = Episode("e", CLAIM.task, "closed-book", "m", 0, (), (TURN,), Answer("Venn"), "answered")
WRONG = structs.replace(RIGHT, outcome=Answer("Oss"))
SILENT = structs.replace(
    RIGHT, outcome=None, end="turn_limit", turns=(structs.replace(TURN, action=Malformed("there is no answer")),)
)
FAILED = structs.replace(
    RIGHT,
    outcome=None,
    end="failed",
    turns=(Turn(0, "", Malformed("nothing"), "failed", failure=Failure("model", "sampling", "down")),),
)
UNASKED = structs.replace(RIGHT, outcome=None, end="sequence_limit", turns=())

# ------------------------------------------------------------------------------------------------------------ sampled


def test_jobs_by_hand():
    jobs = verification_jobs([CLAIM, structs.replace(CLAIM, id="c2", span="Halm.")], VerifierSettings(samples=2), "i0")
    assert [job.episode_id for job in jobs] == [
        f"i0-{claim}-{side}{number}" for claim in ("c1", "c2") for side in ("with", "without") for number in (0, 1)
    ]
    assert [job.protocol.span for job in jobs] == [CLAIM.span] * 2 + [""] * 2 + ["Halm."] * 2 + [""] * 2
    assert {job.task.question.text for job in jobs} == {"Who built the bridge?"}
    assert jobs[0].task.question.answers == ("Venn",)
    assert [job.protocol.prefix(0, True) for job in jobs] == [""] * 8  # no turn is opened for the solver
    assert verification_jobs([CLAIM], VerifierSettings(guided=True), "i0")[0].protocol.prefix(0, True) == "<answer>"
    assert VerifierSettings(turn_tokens=9).limits.max_turns == 1


@pytest.mark.parametrize(
    ("with_span", "without", "support"),
    [
        ([RIGHT, RIGHT, WRONG], [WRONG, SILENT, RIGHT], Support(2 / 3, 1 / 3, 3)),
        ([SILENT, WRONG, WRONG], [RIGHT, RIGHT, RIGHT], Support(0.0, 1.0, 3)),
        # One failed, so the last of the other side is left out too; a failure is no wrong answer.
        ([FAILED, RIGHT, RIGHT], [WRONG, WRONG, RIGHT], Support(1.0, 0.0, 2)),
        ([RIGHT, RIGHT, RIGHT], [FAILED, FAILED, WRONG], Support(1.0, 0.0, 1)),
        ([UNASKED, UNASKED, UNASKED], [RIGHT, RIGHT, RIGHT], None),
        ([RIGHT, RIGHT, RIGHT], [FAILED, FAILED, UNASKED], None),
    ],
)
def test_supports_by_hand(with_span, without, support):
    assert read_supports([*with_span, *without], 3) == [support]
    assert read_supports([*with_span, *without, *[RIGHT] * 6], 3) == [support, Support(1.0, 1.0, 3)]


def test_episodes_that_do_not_belong_together_are_refused():
    other = structs.replace(RIGHT, task=structs.replace(CLAIM, id="c2").task)
    with pytest.raises(ValueError, match="belong to different claims"):
        read_supports([RIGHT, other], 1)
    with pytest.raises(ValueError, match="3 episodes: each claim needs 1 with and 1 without"):
        read_supports([RIGHT] * 3, 1)
    assert read_supports([], 5) == []


def test_the_estimate_is_unbiased_with_the_stated_variance():
    dice = np.random.default_rng(5)
    num_samples, num_claims = 5, 700
    for chance_with, chance_without in itertools.product((0.1, 0.5, 1.0), (0.0, 0.3, 0.9)):
        chances = [chance_with] * num_samples + [chance_without] * num_samples
        drawn = (dice.random((num_claims, 2 * num_samples)) < chances).ravel()
        episodes = [RIGHT if is_right else WRONG for is_right in drawn]
        values = np.array([support.value for support in read_supports(episodes, num_samples)])
        variance = (chance_with * (1 - chance_with) + chance_without * (1 - chance_without)) / num_samples
        # Five standard errors; of the variance too, by the fourth moment that was drawn.
        error = 5 * (variance / num_claims) ** 0.5 + 1e-12
        assert values.mean() == pytest.approx(chance_with - chance_without, abs=error)
        spread = (values - values.mean()) ** 2
        assert spread.mean() == pytest.approx(variance, abs=5 * spread.std() / num_claims**0.5 + 1e-12)


def test_failures_that_strike_at_random_leave_it_unbiased():
    dice = random.Random(3)
    episodes = [
        FAILED if dice.random() < 0.3 else RIGHT if dice.random() < (0.8 if number % 8 < 4 else 0.3) else WRONG
        for number in range(8 * 1500)
    ]
    values = [support.value for support in read_supports(episodes, 4) if support]
    assert np.mean(values) == pytest.approx(0.5, abs=5 * np.std(values) / len(values) ** 0.5)


# -------------------------------------------------------------------------------------------------- those who ignore it


class Deaf:
    """Knows its answers by heart: writes, and finds likely, whatever follows from the question alone."""

    name, lockstep = "deaf", False

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.num_calls = 0

    def open(self, session):
        pass

    close = open

    async def stop(self):
        pass

    def answer(self, token_ids):
        asked = re.findall(r"Question:\n(.*?)<\|im_end\|>", self.tokenizer.decode(token_ids), re.DOTALL)[-1]
        return "Venn" if "bridge" in asked else "Oss"

    async def sample(self, session, token_ids, params):
        ids = self.tokenizer.encode(f"<answer>{self.answer(token_ids)}</answer>", add_special_tokens=False)
        return Sampled(tuple(ids), (-0.1,) * len(ids), "stop_string")

    async def score_many(self, sequences, starts=()):
        self.num_calls += 1
        return [
            [0.0] * start + [-0.1 - (token % 3) for token in ids[start:]]
            for ids, start in zip(sequences, starts, strict=True)
        ]


DEAF = TokenPolicy(Deaf(tiny.tokenizer()), Renderer(tiny.tokenizer()))
spans = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["<answer>Venn</answer>", "Question:\nWho?<|im_end|>", "</answer><answer>", "<|im_start|>system"]),
)


@settings(max_examples=examples(40), deadline=None)
@given(spans, st.sampled_from(["Who built the bridge?", "Which river is it?"]), st.sampled_from(["Venn", "Oss"]))
def test_a_span_that_is_ignored_is_worth_nothing(span, question, answer):
    claim = Claim("c1", question, (answer,), span)
    for form in ("sampled", "teacher_forced"):
        (support,) = asyncio.run(verify_claims(DEAF, [claim], VerifierSettings(form=form, samples=2)))
        assert support.value == 0
    assert support.chance_with < 1
    (sampled,) = asyncio.run(verify_claims(DEAF, [claim], VerifierSettings(samples=2)))
    known = DEAF.sampler.answer(DEAF.renderer.opening(ClosedBook().opening(claim.task)))
    assert sampled.chance_with == (answer == known)


# ----------------------------------------------------------------------------------------------------- teacher-forced


async def test_teacher_forcing_by_hand():
    class Dear(Deaf):
        """A token costs 0.1, or 0.3 where the span was not shown."""

        async def score_many(self, sequences, starts=()):
            self.scored = [
                (self.tokenizer.decode(ids[:start]), self.tokenizer.decode(ids[start:]))
                for ids, start in zip(sequences, starts, strict=True)
            ]
            cost = [0.1 if "Evidence:" in self.tokenizer.decode(ids) else 0.3 for ids in sequences]
            return [
                [0.0] * start + [-each] * (len(ids) - start)
                for ids, start, each in zip(sequences, starts, cost, strict=True)
            ]

    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(Dear(tokenizer), Renderer(tokenizer))
    claim = structs.replace(CLAIM, answers=("Orsolya Venn of Halmgate", "Venn"))
    num_tokens = len(tokenizer.encode("Venn</answer>"))  # the shorter answer is the likelier one
    (support,) = await score_supports(policy, [claim], VerifierSettings())
    assert support.chance_with == pytest.approx(np.exp(-0.1 * num_tokens))
    assert support.chance_without == pytest.approx(np.exp(-0.3 * num_tokens))
    assert support.num_samples == 0
    # The turn is opened as an answer; what is scored is the answer and its closing tag.
    assert [answer for _, answer in policy.sampler.scored] == ["Orsolya Venn of Halmgate</answer>", "Venn</answer>"] * 2
    assert all(prompt.endswith("<answer>") for prompt, _ in policy.sampler.scored)
    with pytest.raises(ValueError, match="claim c1 has no answer"):
        await score_supports(policy, [structs.replace(CLAIM, answers=())], VerifierSettings())


async def test_what_does_not_fit_is_not_verified_and_the_others_are():
    long = structs.replace(CLAIM, id="long", span="Venn " * 400)
    found = await score_supports(DEAF, [CLAIM, long, CLAIM], VerifierSettings(sequence_tokens=300))
    assert found[1] is None
    assert found[0] == found[2] != None  # noqa: E711
    rows = DEAF.renderer.opening(ClosedBook(span=CLAIM.span).opening(CLAIM.task))
    num_tokens = len(rows) + len(DEAF.sampler.tokenizer.encode("<answer>Venn</answer>", add_special_tokens=False))
    for longest, expected in ((num_tokens, found[:1]), (num_tokens - 1, [None])):  # the first just fits
        assert await score_supports(DEAF, [CLAIM], VerifierSettings(sequence_tokens=longest)) == expected
    sampled = await verify_claims(DEAF, [CLAIM, long], VerifierSettings(sequence_tokens=300, samples=2))
    assert sampled == [Support(1.0, 1.0, 2), None]


async def test_many_claims_go_through_the_sampler_in_batches():
    DEAF.sampler.num_calls = 0
    heard = []
    claims = [structs.replace(CLAIM, id=f"c{number}") for number in range(70)]
    found = await verify_claims(
        DEAF, claims, VerifierSettings(form="teacher_forced"), on_support=lambda *told: heard.append(told)
    )
    assert heard == list(zip(claims, found, strict=True))
    assert DEAF.sampler.num_calls == 3


async def test_log_probs_that_are_no_numbers_are_refused():
    class Broken(Deaf):
        async def score_many(self, sequences, starts=()):
            return [[float("nan")] * len(ids) for ids in sequences]

    with pytest.raises(SamplingFailed, match="log-probs are NaN"):
        await score_supports(TokenPolicy(Broken(tiny.tokenizer()), DEAF.renderer), [CLAIM], VerifierSettings())


# "Venn" is how another answer begins: only its closing tag tells them apart.
WITH = {"Venn": 0.5, "Venn Oss": 0.3, "Halm": 0.2}
WITHOUT = {"Venn": 0.1, "Venn Oss": 0.2, "Halm": 0.7}


def taught_policy():
    """A tiny model taught to answer the claim's question about as often as said above, with the span and without."""
    tokenizer = tiny.tokenizer()
    renderer = Renderer(tokenizer)
    samples = []
    for protocol, weights in ((ClosedBook(guided=True, span=CLAIM.span), WITH), (ClosedBook(guided=True), WITHOUT)):
        prompt = renderer.opening(protocol.opening(CLAIM.task)) + tokenizer.encode("<answer>")
        for text, weight in weights.items():
            answer = tokenizer.encode(f"{text}</answer>")
            mask = (False,) * len(prompt) + (True,) * len(answer)
            worth = tuple(weight * flag for flag in mask)
            samples.append(Sample((*prompt, *answer), mask, (0.0,) * len(mask), worth))
    settings = {"aggregation": "token_sum", "weight_decay": 0.0, "max_grad_norm": math.inf}
    learner = Learner(tiny.model(scale=1), LearnerSettings(learning_rate=5e-3, **settings))
    for _ in range(45):
        learner.step(samples)  # computes a prompt once for the three answers to it
    model = tiny.model()
    copy_weights(learner.model, model)
    return TokenPolicy(
        NativeSampler.over(use_packed_attention(model), tokenizer.decode, name="taught", max_rows=64), renderer
    )


@pytest.mark.parametrize("num", [50, pytest.param(250, marks=pytest.mark.slow)])
async def test_teacher_forced_chances_are_the_frequencies_of_sampling(num):
    policy = taught_policy()
    settings = VerifierSettings(samples=num, turn_tokens=12, guided=True)
    try:
        jobs, limits = verification_jobs([CLAIM], settings, "v"), settings.limits
        episodes = [one async for one in run_many(policy, jobs, NoSearcher(), limits, seed=1, concurrency=64)]
        claims = [structs.replace(CLAIM, id=answer, answers=(answer,)) for answer in WITH]
        forced = await score_supports(policy, claims, settings)
    finally:
        await policy.stop()
    assert sum(support.chance_with for support in forced) <= 1
    for claim, support in zip(claims, forced, strict=True):
        (sampled,) = read_supports([structs.replace(episode, task=claim.task) for episode in episodes], num)
        assert sampled.num_samples == num
        for name in ("chance_with", "chance_without"):
            chance = getattr(support, name)
            # Four standard errors, and a little for spellings that exact match forgives.
            error = 4 * (chance * (1 - chance) / num) ** 0.5 + 0.02
            assert getattr(sampled, name) == pytest.approx(chance, abs=error)
    # The model has learnt something, or all of this would say little.
    assert forced[0].chance_with > 0.3 and forced[2].chance_without > 0.4 and forced[2].value < -0.2


# ------------------------------------------------------------------------------------------------------------- hosted


class Chat:
    """Answers right where it sees the span; a question about a river makes it fail."""

    name = "openai:chat"

    def __init__(self):
        self.asked = []

    async def reply(self, messages, params):
        asked = messages[-1]["content"]
        self.asked.append((asked, params))
        if "river" in asked:
            raise SamplingFailed("the endpoint is down")
        return ChatReply("<answer>Venn</answer>" if "Evidence:" in asked else "no idea", "end_of_turn")

    async def stop(self):
        pass


async def test_a_hosted_scorer_sees_prompts_that_differ_by_the_span_and_its_failures_are_not_wrong_answers():
    river = Claim("c2", "Which river is it?", ("Oss",), "The Oss.")
    chat = Chat()
    how = VerifierSettings(form="hosted", samples=3, model="openai:m@http://127.0.0.1:1/v1", temperature=0.5)
    assert await verify_claims(ChatPolicy(chat), [CLAIM, river], how) == [Support(1.0, 0.0, 3), None]
    assert {text for text, _ in chat.asked if "bridge?" in text} == {
        "Evidence:\nVenn built the bridge.\n\nQuestion:\nWho built the bridge?",
        "Question:\nWho built the bridge?",
    }
    assert {(params.temperature, params.max_tokens) for _, params in chat.asked} == {(0.5, 256)}
    with pytest.raises(SamplingFailed, match="the endpoint is down"):
        await verify_claims(ChatPolicy(Chat()), [river], how)
    with pytest.raises(BadInput, match="cannot be teacher-forced"):
        await verify_claims(ChatPolicy(Chat()), [CLAIM], VerifierSettings(form="teacher_forced"))


def test_settings_that_cannot_be_are_refused():
    for wrong, said in (
        (VerifierSettings(samples=0), "samples must be at least 1"),
        (VerifierSettings(temperature=-1), "temperature must be at least 0"),
        (VerifierSettings(form="hosted"), "openai:NAME@URL"),
        (VerifierSettings(model="openai:m@http://x/v1"), "in the hosted form, and empty otherwise"),
    ):
        with pytest.raises(BadInput, match=said):
            wrong.check()
    with pytest.raises(BadInput, match="openai:NAME@URL"):
        open_hosted(VerifierSettings(form="hosted", model="smollm2-135m"))
