"""Teach the built-in model's adapter to read what one search shows, and to abstain where no passage has the answer.

    python benchmarks/reading_lessons.py --questions train.jsonl --index train-index --adapter small/adapter \\
        --out small/reader                      # small_start.sh has the whole command

Of each question whose words find an accepted answer among the passages shown, an episode is scripted: the question as
the query, the real results, the answer as the passage writes it. A share of the questions (`--hidden`) is asked
with the passages that contain an accepted answer left out, and the script abstains. The turns have no thought, so the
probability of an answer's first token includes the decision not to abstain: `quaere ask --min-confidence` can use it.

The adapter is trained further as it is, so its rank and size stay.
"""

import argparse
import asyncio
import gzip
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from msgspec import structs

from quaere.chat.renderer import Renderer
from quaere.dialects.notes import Notes, find_notes
from quaere.disk import write_file
from quaere.policies.catalogue import resolve_model
from quaere.policies.model_folders import load_tokenizer
from quaere.policies.native.bridge import load_model
from quaere.records import Answer, Episode, Question, SolveTask, Turn
from quaere.rewards.abstention import ABSTENTION, hide_answers
from quaere.rewards.answers import contains, normalise_answer
from quaere.rollout.episode import Limits
from quaere.search.searcher import open_searcher
from quaere.training.adapters import fuse
from quaere.training.learner import Learner, save_weights
from quaere.warmup.imitation import TeachingStep, imitation, teach
from quaere.warmup.scripted_episodes import Attempt, Demonstrations, demonstrate, find_failure, open_protocol

MODEL = "smollm2-135m-plain"
_MOST_WORDS = 6  # of an answer that is taught


def read_questions(path: Path) -> list[Question]:
    """The questions of a JSONL file whose answers are short and neither yes nor no."""
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
    with opened as lines:
        rows = [json.loads(line) for line in lines]
    short = [row for row in rows if row["answers"] and len(row["answers"][0].split()) <= _MOST_WORDS]
    return [
        Question(row["id"], row["question"], tuple(one.strip(" .,;:") for one in row["answers"]))
        for row in short
        if not {normalise_answer(one) for one in row["answers"]} & {"", "yes", "no"}
    ]


def write_turn(question: Question, turns: Sequence[Turn], news: str) -> str:
    """The query, then the answer as the first passage that has one writes it, or the abstention."""
    if not turns:
        return f"<search>{question.text}</search>"
    shown = [hit.passage for result in turns[-1].results for hit in result.hits]
    for passage in shown:
        for answer in question.answers:
            if contains(passage.text, answer) and contains(news, answer):
                return f"<answer>{answer}</answer>"
    return f"<answer>{ABSTENTION}</answer>"


def find_fault(episode: Episode) -> str:
    """Why an episode teaches the wrong thing: its question has an answer that was not shown, or it failed."""
    assert isinstance(episode.task, SolveTask)
    if failure := find_failure(episode):
        return failure
    abstained = isinstance(episode.outcome, Answer) and episode.abstained
    if not episode.task.question.answers:
        return "" if abstained else "a hidden answer was shown"
    return "the search did not show an answer" if abstained else ""


async def play(
    questions: Sequence[Question], index: str, renderer: Renderer, limits: Limits, hidden: float, seed: int
) -> Demonstrations:
    """Scripted episodes of the questions, a share of them with hidden answers."""
    searcher, played = open_searcher(index), Demonstrations()
    protocol = open_protocol("solver", "brief", "search-r1", abstention=True)
    draw = random.Random(seed)
    try:
        for question in questions:
            copy = hide_answers(question) if draw.random() < hidden else None
            asked = copy or question
            script = lambda turns, news, asked=asked: write_turn(asked, turns, news)  # noqa: E731
            attempt = Attempt(asked.id, SolveTask(asked), script, protocol, find_fault)
            episode = await demonstrate(attempt, searcher, renderer, limits, name="reading")
            played.take(episode, find_fault(episode))
    finally:
        await searcher.close()
    return played


def open_adapter(folder: Path) -> torch.nn.Module:
    """The plain model with the adapter, which is trained further."""
    from peft import PeftModel

    base = load_model(resolve_model(MODEL), "cpu", "float32", packed=False)
    adapted = PeftModel.from_pretrained(base, str(folder), is_trainable=True)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.float()
        else:
            weight.data = weight.data.bfloat16()
    fuse(adapted)
    return adapted


def main() -> None:
    """Play the lessons, teach them, and write the adapter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=Path, nargs="+", required=True, help="one file for each index")
    parser.add_argument("--index", nargs="+", required=True)
    parser.add_argument("--adapter", type=Path, required=True, help="the adapter to train further")
    parser.add_argument("--most", type=int, nargs="+", help="questions of each file, drawn by seed")
    parser.add_argument("--hidden", type=float, default=0.25, help="share of questions asked with hidden answers")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    notes: Notes = find_notes(str(args.adapter))
    assert notes.limits is not None
    renderer, episodes, dropped = Renderer(load_tokenizer(resolve_model(MODEL).path)), list[Episode](), Counter[str]()
    for path, index, most in zip(args.questions, args.index, args.most, strict=True):
        questions = read_questions(path)
        random.Random(args.seed).shuffle(questions)
        chosen = questions[:most]
        played = asyncio.run(play(chosen, index, renderer, notes.limits, args.hidden, args.seed))
        print(f"{path}: {len(played.episodes)} lessons of {len(chosen)} questions; {dict(played.dropped)}", flush=True)
        episodes += played.episodes
        dropped += played.dropped
    torch.manual_seed(args.seed)
    settings = imitation(args.learning_rate, 8192)
    learner = Learner(open_adapter(args.adapter), settings, adapter="default")
    started = time.perf_counter()

    def report(step: TeachingStep) -> None:
        minutes = (time.perf_counter() - started) / 60
        pace = f"{step.tokens_per_s:.0f} tokens/s, {minutes:.1f} minutes"
        print(f"step {step.step} of {step.num_steps}: loss {step.loss:.3f}, {pace}", flush=True)
        left = 1 - step.step / step.num_steps
        learner.settings = structs.replace(settings, learning_rate=max(0.02, left) * args.learning_rate)
        if step.step % 20 == 0:
            save_weights(learner.model, args.out.with_name(f"{args.out.name}-{step.step}"), "default", "bfloat16")

    with torch.autocast("cpu", torch.bfloat16):
        taught = teach(learner, episodes, epochs=1, batch=args.batch, seed=args.seed, report=report)
    print(taught)
    args.out.mkdir(parents=True)
    save_weights(learner.model, args.out, "default", "bfloat16")


if __name__ == "__main__":
    main()
