"""A small model taught on reports of the warm-up writes as the rubric asks; taught without regard to it, it does not.

The lessons are the oracle's drafts. Without their passages they are short enough for a model of a few thousand weights:
what it states is made up, but how it writes can be measured.
"""

import asyncio
import math
import random
import sys
from functools import lru_cache
from pathlib import Path
from statistics import fmean

import pytest

import tiny
import village
from quaere.chat.renderer import Renderer
from quaere.dialects.report.report_writer import ReportWriter, bind_report, numbered_sources, write_turn
from quaere.errors import SamplingFailed
from quaere.policies.sampler import SamplingParams
from quaere.records import ReportTask, Rubric, Weight
from quaere.rollout.episode import Job, Limits, run_episode, run_many
from quaere.rollout.policy import TokenPolicy, open_policy
from quaere.training.batches import make_sample
from quaere.training.learner import Learner
from quaere.training.settings import LearnerSettings
from quaere.warmup.lessons import build_world
from quaere.warmup.oracle_reports import write_draft
from quaere.warmup.report_lessons import Research
from quaere.warmup.rubric_drafts import write_by_rubric
from quaere.worlds.dice import Dice
from quaere.worlds.open_questions import ask_open_questions
from scripted import ScriptedSampler

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LIMITS = Limits(max_turns=1, turn_tokens=320, sequence_tokens=900, answer_turn=False)
# The feature of each dimension, as `rubric_probe.py` measures it, and whether the dimension raises or lowers it.
FEATURE = {"citation": ("marks", 1), "readability": ("words per statement", -1)}
NUM_QUESTIONS, NUM_EPOCHS, BATCH = 96, 10, 16


@lru_cache
def gather(folder):
    """A world's questions with what is found on each."""
    world, index = build_world(1, 300, folder)
    research = Research(world, index, Limits(max_turns=8), style="brief", seed=0)
    golds = ask_open_questions(world.graph, world.seed, 2 * NUM_QUESTIONS)
    return world, [(gold, numbered_sources(research._gather(gold, Dice(gold.id)))) for gold in golds]


def under(name):
    return Rubric("factuality", (Weight(name, 0.3),))


def draw_lessons(folder, follows):
    """Tasks with the turns that answer them, for every question under each rubric."""
    world, gathered = gather(folder)
    lessons = []
    for gold, sources in gathered:
        for name in FEATURE:
            dice = Dice(gold.id)  # without regard to the rubric, both have the same drafts
            try:
                if follows:
                    draft = write_by_rubric(world, gold, sources, under(name), dice)
                else:
                    draft = write_draft(world, gold, sources, dice)
            except SamplingFailed:
                break
            lessons.append((ReportTask(gold.to_question(), under(name)), write_turn("", "answer", draft.text)))
    return lessons[: NUM_QUESTIONS * len(FEATURE)]


def make_tokenizer(texts):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.BPE())
    built.pre_tokenizer, built.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    built.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    )
    built.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    made = PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<|im_end|>")
    made.chat_template = tiny.CHATML
    return made


async def play(tokenizer, task, turn):
    renderer = Renderer(tokenizer)
    policy = TokenPolicy(ScriptedSampler(tokenizer, {"lesson": [renderer.write_turn(turn)]}), renderer)
    episode = await run_episode(
        policy, ReportWriter(style="brief"), tiny.ListSearcher([]), task, LIMITS, episode_id="lesson"
    )
    assert episode.end == "answered"
    return make_sample(episode, 1.0)


def teach(folder, lessons, seed):
    """A model that was taught these lessons, as a folder."""
    tokenizer = make_tokenizer([f"{task.question.text} {task.rubric.text} {turn}" for task, turn in lessons])
    samples = [asyncio.run(play(tokenizer, *lesson)) for lesson in lessons]
    shape = {"vocab_size": len(tokenizer), "num_hidden_layers": 1, "tie_word_embeddings": False, "scale": 1}
    model, draw = tiny.model("llama", seed=seed, **shape), random.Random(seed)
    learner = Learner(model, LearnerSettings(learning_rate=8e-3, weight_decay=0.0, micro_tokens=8192))
    with village.without_onednn():
        for _ in range(NUM_EPOCHS):
            draw.shuffle(samples)
            for start in range(0, len(samples), BATCH):
                learner.step(samples[start : start + BATCH])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


async def write_reports(model, tasks, seed):
    policy = open_policy(str(model), device="cpu", dtype="float32", max_rows=32)
    jobs = [Job(ReportWriter(style="brief"), task) for task in tasks]
    params, written = SamplingParams(temperature=0.7), []
    async for episode in run_many(policy, jobs, tiny.ListSearcher([]), LIMITS, seed=seed, params=params):
        written.append((episode.task.rubric.weights[0].dimension, bind_report(episode)))
    await policy.stop()
    return written


def measure(folder, lessons, seed, num_reports=64):
    """How much more of its feature reports have under a rubric than under the other: the mean log ratio."""
    sys.path.insert(0, str(BENCHMARKS))
    from rubric_probe import FEATURES

    questions = list(dict.fromkeys(task.question for task, _ in lessons))[:num_reports]
    tasks = [ReportTask(question, under(name), number) for number, name in enumerate(FEATURE) for question in questions]
    written = asyncio.run(write_reports(teach(folder, lessons, seed), tasks, seed))
    assert sum(report is not None for _, report in written) > 0.6 * len(written)
    effects = []
    for name, (feature, sign) in FEATURE.items():
        values = [(FEATURES[feature](report), own == name) for own, report in written if report is not None]
        own, other = (fmean(value for value, is_own in values if is_own == wanted) for wanted in (True, False))
        effects.append(sign * math.log(own / other))
    return fmean(effects)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_a_taught_writer_writes_depends_on_the_rubric(tmp_path_factory, tmp_path, seed):
    """Marks by the sentence and the length of sentences differ by more than 7 %; without regard to it, by less."""
    place = tmp_path_factory.getbasetemp() / "world"
    followed, ignored = (measure(tmp_path / str(how), draw_lessons(place, how), seed) for how in (True, False))
    assert followed > 0.07 > abs(ignored)
