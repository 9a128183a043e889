"""A village small enough to train a whole Dr. Zero in: sixteen bridges, who built and who paid for each.

A transformer of a few thousand weights is taught the *format* of both roles by imitation, choosing at random between
builder and payer wherever there is a choice. So its questions are well formed, and its answers right about half the
time: just what a proposer is paid for.
"""

import asyncio
import json
import random
import re
from contextlib import contextmanager
from functools import lru_cache

import tiny
from building import teach_once
from quaere.chat.renderer import Renderer
from quaere.dialects.tool_call import BRIEF_SOLVER_SYSTEM, ToolCallProposer, ToolCallSolver, brief_proposer_system
from quaere.records import ProposeTask, Question, SolveTask
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index
from quaere.search.searcher import LocalSearcher
from quaere.training.batches import make_sample
from quaere.training.learner import Learner
from quaere.training.settings import LearnerSettings
from scripted import ScriptedSampler

BRIDGES = "Halm Oss Korrin Tallow Brill Dunmer Esker Fane Gorse Hollin Ister Jarrow Keld Lorn Marrow Nevin".split()
PEOPLE = "Venn Brod Hask Oleen Marl Tavi Quill Sorn".split()
# Words its tokenizer was not made for are spelled letter by letter: a note on the last search would take up the room.
LIMITS = {"max_turns": 3, "turn_tokens": 32, "sequence_tokens": 256, "tool_response_tokens": 24, "topk": 1}
LIMITS["answer_turn"] = False
SEARCH = '<tool_call>{{"name": "search", "arguments": {{"query_list": ["{}"]}}}}</tool_call>'
THINK = "<think>Look.</think>"
PASSAGE = "{} built it. {} paid for it. It leads to {}."


def builder(number):
    return PEOPLE[number % len(PEOPLE)]


def payer(number):
    return PEOPLE[(number * 3 + 5) % len(PEOPLE)]


def next_bridge(number):
    return (number + 7) % len(BRIDGES)


@lru_cache
def tokenizer():
    """Whole pieces of the format are single tokens, so that an episode is some sixty tokens long."""
    before, after = SEARCH.format("|").split("|")
    lines = [
        before,
        after,
        THINK,
        "<answer>",
        "</answer>",
        "<question>Who built ",
        "<question>Who paid for ",
        "?</question>",
    ]
    lines += [
        *BRIDGES,
        *PEOPLE,
        " built it. ",
        " paid for it. It leads to ",
        "Question:\n",
        "Who built ",
        "Who paid for ",
    ]
    lines += ["<tool_response>\n", "\n</tool_response>", "[1]\n", "system\n", "user\n", "assistant\n", "Document:\n"]
    lines += [BRIEF_SOLVER_SYSTEM, *(brief_proposer_system(hops) for hops in (1, 2))]
    return make_tokenizer(lines, 1200)


def make_tokenizer(lines, vocab_size):
    """A tokenizer to which these lines are single tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    built.train_from_iterator(lines * 3, trainer)
    built.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    made = PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<|im_end|>")
    made.chat_template = tiny.CHATML
    return made


def write_index(folder, passage=PASSAGE):
    rows = []
    for number, name in enumerate(BRIDGES):
        text = passage.format(builder(number), payer(number), BRIDGES[next_bridge(number)], name=name)
        rows.append({"id": name, "title": name, "text": text})
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    build_index(corpus, folder / "index", IndexSettings())
    return folder / "index"


def solver_lesson(draw, number):
    """Searches for the bridge it is asked about; answers with either person."""
    what = draw.choice(["built", "paid for"])
    answer = draw.choice([builder(number), payer(number)])
    task = SolveTask(Question(f"s{number}", f"Who {what} {BRIDGES[number]}?", (answer,), 1))
    return (
        ToolCallSolver(style="brief"),
        task,
        [THINK + SEARCH.format(BRIDGES[number]), f"{THINK}<answer>{answer}</answer>"],
    )


def proposer_lesson(draw, number, passages):
    """One hop: asks about the document's bridge. Two: about the one it leads to, after a search for it."""
    hops = draw.choice([1, 2])
    about = number if hops == 1 else next_bridge(number)
    what = draw.choice(["built", "paid for"])
    answer = draw.choice([builder(about), payer(about)])
    turns = write_proposal(about, hops, what, answer)
    return ToolCallProposer(style="brief"), ProposeTask(f"p{number}", passages[BRIDGES[number]], hops), turns


def write_proposal(about, hops, what, answer):
    """A question about this bridge, after a search for it if it is more than a hop away."""
    ending = f"{THINK}<question>Who {what} {BRIDGES[about]}?</question><answer>{answer}</answer>"
    return [ending] if hops == 1 else [THINK + SEARCH.format(BRIDGES[about]), ending]


def draw_lessons(draw, passages):
    """A lesson for each role about every bridge."""
    lessons = []
    for number in draw.sample(range(len(BRIDGES)), len(BRIDGES)):
        lessons += [solver_lesson(draw, number), proposer_lesson(draw, number, passages)]
    return lessons


async def play_lessons(tokenizer, index_path, draw_lessons, num_rounds, limits):
    """What every lesson says, played with real searches: a list of samples a round."""
    draw = random.Random(0)
    index = open_index(index_path)
    passages = {passage.doc_id: passage for passage in index.passages()}
    searcher, renderer = LocalSearcher(index), Renderer(tokenizer)
    played = {}  # there are some two hundred different lessons, and each is played once

    async def play(protocol, task, turns):
        key = (task, tuple(turns))
        if key not in played:
            written = [renderer.write_turn(turn) for turn in turns]
            policy = TokenPolicy(ScriptedSampler(tokenizer, {"lesson": written}), renderer)
            episode = await run_episode(policy, protocol, searcher, task, limits, episode_id="lesson")
            assert episode.end == "answered"
            played[key] = make_sample(episode, 1.0)
        return played[key]

    rounds = [[await play(*lesson) for lesson in draw_lessons(draw, passages)] for _ in range(num_rounds)]
    await searcher.close()
    return rounds


@contextmanager
def without_onednn():
    """It takes longer to set up a product as small as these than to compute it."""
    import torch

    before, torch.backends.mkldnn.enabled = torch.backends.mkldnn.enabled, False
    yield
    torch.backends.mkldnn.enabled = before


def save_taught(folder, tokenizer, index, draw_lessons, limits, num_rounds, num_times=1):
    """Teach a small model by imitation, each round so many times, and write it as a folder that is not there yet."""

    def teach(folder):
        # One layer learns this as well as two, in half of the time.
        shape = {"vocab_size": len(tokenizer), "num_hidden_layers": 1, "tie_word_embeddings": False, "scale": 1}
        model = tiny.model("llama", seed=0, **shape)
        rounds = asyncio.run(play_lessons(tokenizer, index, draw_lessons, num_rounds, Limits(**limits)))
        learner = Learner(model, LearnerSettings(learning_rate=8e-3, weight_decay=0.0))
        with without_onednn():
            for samples in rounds * num_times:
                learner.step(samples)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    teach_once(folder, f"{draw_lessons.__module__}-{num_rounds}x{num_times}", teach)
    return folder


def build(folder, num_steps=80):
    """The index, and a model that knows the format: returns their paths."""
    index = write_index(folder)
    return index, save_taught(folder / "model", tokenizer(), index, draw_lessons, LIMITS, num_steps)


# ---------------------------------------------------------------------------------------------------------- dictation

KINDS = ("solved once", "never solved", "given away", "unfinished")


def kind_of(proposal_id, kinds=KINDS):
    """What is dictated of a proposal, by the numbers in its id: "i0p-000005" is never solved, nor is "i0g-000002.3"."""
    return kinds[sum(map(int, re.findall(r"\d+", proposal_id.partition("-")[2]))) % len(kinds)]


def dictate(job):
    """Every proposal about a document, and every attempt at one: no two ask the same, and not all earn the same."""
    if isinstance(job.task, ProposeTask):
        return dictate_proposal(job.task, kind_of(job.episode_id)) if job.task.document else None
    (right,) = job.task.question.answers
    wrong = next(name for name in PEOPLE if name != right)
    is_right = kind_of(job.task.id) == "solved once" and job.episode_id.endswith("a0")
    bridge = next(name for name in BRIDGES if name in job.task.question.text)
    return [THINK + SEARCH.format(bridge), f"{THINK}<answer>{right if is_right else wrong}</answer>"]


def dictate_proposal(task, kind):
    """A question of this kind; those of one hop are about builders, others about payers."""
    number = BRIDGES.index(task.document.doc_id)
    about = number if task.hops == 1 else next_bridge(number)
    what, answer = ("built", builder(about)) if task.hops == 1 else ("paid for", payer(about))
    if kind == "unfinished":
        return [THINK + SEARCH.format(BRIDGES[about])] * LIMITS["max_turns"]
    return write_proposal(about, task.hops, what, BRIDGES[about] if kind == "given away" else answer)
