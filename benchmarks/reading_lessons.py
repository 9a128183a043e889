"""Teach the built-in model's adapter to read what one search shows, and to abstain where no passage has the answer.

    python benchmarks/reading_lessons.py --adapter src/quaere/policies/adapters/smollm2-135m --out taught \\
        --set entity.jsonl=train-index:823 --set hotpot-2wiki.jsonl=train-index:2200 \\
        --set manuals.jsonl=manuals-index:1100

For the lab notes the files had EntityQuestions; HotpotQA and 2WikiMultihopQA; and questions of
`results/own-documents/docs-questions` and `docs-fourth` about grass, lxd and notes. The second training had 400, 120
and 200 of them, `--adapter taught --hidden 0.05 --seed 1 --learning-rate 2e-4`.

An episode is scripted for each question whose words find an accepted answer among the passages shown: the question as
the query, the real results, the answer as it was accepted. A share of the questions (`--hidden`) is asked with the
passages that contain an accepted answer left out, and the script abstains. The turns have no thought, so the confidence
of an answer includes the decision not to abstain.

The adapter is trained further as it is, so its rank and size stay. The forward pass is autocast to bfloat16: on a CPU
with AMX 600 tokens a second on two cores, 340 in float32.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from msgspec import structs

from quaere.chat.renderer import Renderer
from quaere.dialects.notes import NOTES, find_notes
from quaere.policies.catalogue import resolve_model
from quaere.policies.model_folders import load_tokenizer
from quaere.policies.native.bridge import load_model
from quaere.records import Episode, Question, SolveTask, Turn
from quaere.rewards.abstention import ABSTENTION, hide_answers
from quaere.rewards.answers import contains, normalise_answer
from quaere.rollout.episode import Limits
from quaere.rollout.question_files import read_questions
from quaere.search.searcher import open_searcher
from quaere.training.adapters import fuse
from quaere.training.learner import Learner, save_weights
from quaere.warmup.imitation import TeachingStep, imitation, teach
from quaere.warmup.scripted_episodes import Attempt, Demonstrations, demonstrate, find_failure, open_protocol

MODEL, ADAPTER = "smollm2-135m-plain", "default"
_MOST_WORDS = 6  # of an answer that is taught
_LEAST_RATE = 0.02  # of the learning rate, at the end


def is_short(question: Question) -> bool:
    """True if the first accepted answer has a few words and none is yes or no."""
    named = {normalise_answer(answer) for answer in question.answers}
    return bool(named) and not named & {"", "yes", "no"} and len(question.answers[0].split()) <= _MOST_WORDS


def write_turn(question: Question, turns: Sequence[Turn], news: str) -> str:
    """The query, then an accepted answer that a passage shown contains, or the abstention."""
    if not turns:
        return f"<search>{question.text}</search>"
    passages = [hit.passage.text for result in turns[-1].results for hit in result.hits]
    shown = (answer for text in passages for answer in question.answers if contains(text, answer))
    return f"<answer>{next((one for one in shown if contains(news, one)), ABSTENTION)}</answer>"


def find_fault(episode: Episode) -> str:
    """Why an episode would teach something false: it failed, or it abstains though its question has an answer."""
    assert isinstance(episode.task, SolveTask)
    is_missed = episode.abstained and bool(episode.task.question.answers)
    return find_failure(episode) or ("the search showed no answer" if is_missed else "")


async def play(
    questions: Sequence[Question], index: str, renderer: Renderer, limits: Limits, hidden: float, seed: int
) -> Demonstrations:
    """Scripted episodes of the questions, a share of them with hidden answers."""
    searcher, played, draw = open_searcher(index), Demonstrations(), random.Random(seed)
    protocol = open_protocol("solver", "brief", "search-r1", abstention=True)
    try:
        for question in questions:
            asked = (hide_answers(question) if draw.random() < hidden else None) or question
            attempt = Attempt(asked.id, SolveTask(asked), partial(write_turn, asked), protocol)
            episode = await demonstrate(attempt, searcher, renderer, limits, name="reading")
            played.take(episode, find_fault(episode))
    finally:
        await searcher.close()
    return played


def open_adapter(folder: Path) -> Any:
    """The plain model in bfloat16 with the adapter in float32, which is trained further."""
    from peft import PeftModel

    base = load_model(resolve_model(MODEL), "cpu", "float32", packed=False)
    adapted = PeftModel.from_pretrained(base, str(folder), is_trainable=True)
    for name, weight in adapted.named_parameters():
        weight.data = weight.data.float() if "lora_" in name else weight.data.bfloat16()
    fuse(adapted)
    return adapted


def train(episodes: Sequence[Episode], args: argparse.Namespace) -> Any:
    """The model with its adapter after one epoch, at a learning rate that falls to almost nothing."""
    settings = imitation(args.learning_rate, 8192)
    learner = Learner(open_adapter(args.adapter), settings, adapter=ADAPTER)

    def report(step: TeachingStep) -> None:
        print(
            f"step {step.step} of {step.num_steps}: loss {step.loss:.3f}, {step.tokens_per_s:.0f} tokens/s", flush=True
        )
        share = max(_LEAST_RATE, 1 - step.step / step.num_steps)
        learner.settings = structs.replace(settings, learning_rate=share * args.learning_rate)

    with torch.autocast("cpu", torch.bfloat16):
        print(teach(learner, episodes, epochs=1, batch=args.batch, seed=args.seed, report=report))
    return learner.model


def main() -> None:
    """Play the lessons, teach them, and write the adapter with its notes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", required=True, metavar="FILE=INDEX:NUM", dest="sets")
    parser.add_argument("--adapter", type=Path, required=True, help="the adapter to train further")
    parser.add_argument("--hidden", type=float, default=0.25, help="share of questions asked with hidden answers")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    limits = find_notes(str(args.adapter)).limits
    assert limits is not None
    renderer, episodes = Renderer(load_tokenizer(resolve_model(MODEL).path)), list[Episode]()
    for given in args.sets:
        file, index, num = *given.rpartition(":")[0].split("=", 1), int(given.rpartition(":")[2])
        questions = [question for question in read_questions(file) if is_short(question)]
        random.Random(args.seed).shuffle(questions)
        played = asyncio.run(play(questions[:num], index, renderer, limits, args.hidden, args.seed))
        print(f"{file}: {len(played.episodes)} lessons; {dict(played.dropped)}", flush=True)
        episodes += played.episodes
    torch.manual_seed(args.seed)
    save_weights(train(episodes, args), args.out, ADAPTER, "bfloat16")
    notes = json.loads((args.adapter / NOTES).read_text())
    (args.out / NOTES).write_text(json.dumps({**notes, "abstention": True}, indent=2) + "\n")


if __name__ == "__main__":
    main()
