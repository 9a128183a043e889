"""A cold start shows how to go on after a low score: the model searches again, instead of answering from nothing.

The village of `village.py` in the evaluate dialect. A small model was taught the format in episodes that find the page
at once, so it knows no low score, and after any score it answers. Then it learns from its right attempts, played again
as `warmup evalact --index` does.
"""

import asyncio
import random
from functools import lru_cache
from statistics import fmean

import pytest
from msgspec import structs
from transformers import AutoModelForCausalLM

import village
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import EvaluateSolver, cue
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import SamplingParams
from quaere.records import Evidence, Question, Search, SolveTask
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.search.index import open_index
from quaere.search.searcher import LocalSearcher
from quaere.training.batches import make_sample
from quaere.training.learner import Learner
from quaere.training.settings import LearnerSettings
from quaere.warmup import phrases
from quaere.warmup.documents.judged_searches import evaluations, mask_others, play_judged
from scripted import ScriptedSampler
from village import BRIDGES, THINK, builder, payer
from weighing import EVALUATE, SEARCH

SOLVER = EvaluateSolver(style="brief")
LIMITS = Limits(max_turns=6, turn_tokens=96, sequence_tokens=900, tool_response_tokens=48, topk=1, answer_turn=False)
DEEDS = {"built": ("{} built it.", builder), "paid for": ("{} paid for it.", payer)}
NUM_STEPS = 40
UNSEEN = range(0, len(BRIDGES), 4)  # no lesson after a bad search is about these


@lru_cache
def tokenizer():
    """Whole pieces of the format and words of evaluations are single tokens."""
    said = [form for forms in phrases.load_forms("evaluations").values() for form in forms]
    words = {f" {word}" for form in said for word in form.replace("[", " ").replace("]", " ").replace("|", " ").split()}
    lines = [*SEARCH.format("|").split("|"), *EVALUATE.format("|", "|").split("|"), THINK, "<answer>", "</answer>"]
    lines += [*map(cue, range(1, 11)), "Who built ", "Who paid for ", "Question:\n", *BRIDGES, *village.PEOPLE]
    lines += [" built it. ", " paid for it. It leads to ", *sorted(words)]
    lines += ["<tool_response>\n", "\n</tool_response>", "[1]\n", "system\n", "user\n", "assistant\n", "tool\n"]
    lines += [SOLVER.opening(SolveTask(Question("q", "")))[0].text]
    return village.make_tokenizer(lines, 3000)


def ask(deed, number):
    """A question with the sentence that its answer rests on."""
    told, who = DEEDS[deed]
    sentence, text = told.format(who(number)), f"{builder(number)} built it. {payer(number)} paid for it."
    evidence = Evidence(BRIDGES[number], text.index(sentence), text.index(sentence) + len(sentence), sentence)
    return Question(f"{deed} {number}", f"Who {deed} {BRIDGES[number]}?", (who(number),), 1, evidence=(evidence,))


def right_script(deed, number):
    search, found = SEARCH.format(BRIDGES[number]), EVALUATE.format("Found.", 9)
    return [THINK + search, THINK + found, f"{THINK}<answer>{DEEDS[deed][1](number)}</answer>"]


def draw_lessons(draw, passages):
    """Right attempts that find the page at once, about half of the bridges."""
    numbers = draw.sample(range(len(BRIDGES)), len(BRIDGES) // 2)
    return [(SOLVER, SolveTask(ask(deed, number)), right_script(deed, number)) for number in numbers for deed in DEEDS]


async def replay(searcher, renderer, numbers, seed):
    """Right attempts at every question about these bridges, played again as lessons."""
    asked = {f"{deed}-{number}": (deed, number) for number in numbers for deed in DEEDS}
    scripts = {name: right_script(*of) for name, of in asked.items()}
    policy = TokenPolicy(ScriptedSampler(tokenizer(), scripts), renderer)
    attempts = [
        await run_episode(policy, SOLVER, searcher, SolveTask(ask(*of)), LIMITS, episode_id=name)
        for name, of in asked.items()
    ]
    whole = frozenset(asked)
    judged = await play_judged(attempts, searcher, renderer, "evalact", SOLVER, LIMITS, whole=whole, seed=seed)
    return judged.lessons.episodes


def is_spoilt(episode):
    return episode.id.endswith("spoilt") and episode.turns[1].action.score == 1


async def next_actions(model, renderer, episodes):
    """What the model does after the score of the first search, greedily."""
    params = SamplingParams(max_tokens=LIMITS.turn_tokens, temperature=0, stop=SOLVER.stop)
    async with NativeSampler.over(use_packed_attention(model), tokenizer().decode, name="tiny") as sampler:
        sampled = await asyncio.gather(
            *(sampler.sample(str(id(one)), one.token_ids[: one.turns[2].start], params) for one in episodes)
        )
    return [SOLVER.read(renderer.decode(one.token_ids)) for one in sampled]


async def go_on(folder, index, seed, *, shown=True):
    """The share of low first scores after which the model searches again, for bridges that no lesson is about."""
    searcher, renderer = LocalSearcher(open_index(index)), Renderer(tokenizer())
    lessons = await replay(searcher, renderer, [one for one in range(len(BRIDGES)) if one not in UNSEEN], seed)
    played = [one for dice in range(4) for one in await replay(searcher, renderer, range(len(BRIDGES)), 100 + dice)]
    await searcher.close()
    exam = [one for one in played if is_spoilt(one) and int(one.id.split("-")[1]) in UNSEEN]
    if not shown:
        lessons = [mask_others(one, evaluations(one)) if is_spoilt(one) else one for one in lessons]
    samples, draw = [make_sample(one, 1.0) for one in lessons], random.Random(seed)
    model = AutoModelForCausalLM.from_pretrained(folder)
    learner = Learner(model, LearnerSettings(learning_rate=3e-3, weight_decay=0.0))
    with village.without_onednn():
        for _ in range(NUM_STEPS):
            learner.step(draw.sample(samples, 16))
    actions = await next_actions(model, renderer, exam)
    return sum(isinstance(action, Search) for action in actions) / len(exam)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The index, and a model that answers after any score."""
    folder = tmp_path_factory.mktemp("going-on")
    index = village.write_index(folder)
    return index, village.save_taught(folder / "model", tokenizer(), index, draw_lessons, structs.asdict(LIMITS), 40, 2)


async def test_after_a_low_score_it_searches_again(place):
    index, folder = place
    shown = fmean([await go_on(folder, index, seed) for seed in range(3)])
    control = fmean([await go_on(folder, index, seed, shown=False) for seed in range(3)])  # loss on evaluations alone
    # Six seeds: 0.67 to 1.0, and 0.0 to 0.21.
    assert shown > control + 0.4
