"""Which signal tells a good question from one that is unclear or wrong? The AUROC of each, on questions that were read.

    python benchmarks/question_signals.py --model Qwen/Qwen2.5-1.5B-Instruct --out signals.jsonl \\
        --set docs=INDEX:benchmarks/results/own-documents/docs-questions.jsonl.gz:reads-docs.tsv,reads-docs-first.tsv

A set is NAME=INDEX:QUESTIONS:READS,...; without reads, signals of its first --num questions are written, but none that
needs the model to write. Reads are the sheets of `blind_sample.py` with a label per question: good,
unclear or wrong. Only single facts count, and no planted ones. Signals: what the writer stores (`with_page`,
`same_words`), the rank of the passage for the question, log-probs of the question and of its answer, the model's own
yes or no, and how far other wordings of the question agree with it. By 8 answers each: p+ (with the evidence), p+ among
noise (with its passage among three others), V (p+ minus right without any text). Brackets are 95 % bootstrap intervals
over the questions. The difficulty of a question, as Dr. Zero rewards it, comes from the solver's attempts in a run:

    quaere evolve drzero --model SOLVER --index INDEX --out RUN --set proposer.steps=0 --set generation.candidates=0 \\
        --set generation.given=QUESTIONS --set generation.attempts=5 --set solver.steps=0 --set iterations=1
    python benchmarks/question_signals.py ... --solved RUN
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from quaere.chat.protocol import Message, Quoted
from quaere.records import Passage
from quaere.rewards.answers import exact_match_score
from quaere.rewards.proposer import difficulty_reward
from quaere.rollout.policy import open_policy
from quaere.runs import Run
from quaere.search.index import Index, open_index
from quaere.search.json_lines import read_lines
from quaere.warmup.documents.askable_facts import Fact, find_facts
from quaere.warmup.documents.checks import Lines, word_overlap
from quaere.warmup.documents.prompt_examples import JUDGED
from quaere.warmup.documents.prompts import answer_question, judge_question, show_place, word_question

NUM_WORDINGS = 6
NUM_RESAMPLES = 2000
MAX_TOKENS = 1536

ALONE = (
    "You check questions. Say yes if someone who sees the question alone understands what is asked and about which "
    "program, page, person or thing. Otherwise say no."
)
FITTING = "You check answers. Say yes if the answer can be the answer of such a question. Otherwise say no."


class Item:
    """A question that was read: its label, its fact and the passages that a search with it finds."""

    def __init__(
        self, name: str, row: dict[str, str], question: dict[str, Any], fact: Fact, found: list[Passage]
    ) -> None:
        self.set, self.label = name, row["label"]
        self.id, self.text, self.answers = row["id"], question["question"], question["answers"]
        self.answer = question["answers"][-1]
        self.fact, self.passage = fact, fact.passage
        others = [passage for passage in found if passage.id != fact.passage.id]
        self.shown = [passage.titled_text for passage in [fact.passage, *others[:3]]]
        ids = [passage.id for passage in found]
        self.signals = {name: float(value) for name, value in question["scores"].items() if name != "closed_book"}
        self.signals["rank"] = -float(ids.index(fact.passage.id) if fact.passage.id in ids else 20)
        self.signals["found by itself (10)"] = float(fact.passage.id in ids[:10])
        self.signals["num_words"] = float(len(self.text.split()))


def read_set(given: str, num: int) -> list[Item]:
    name, _, rest = given.partition("=")
    index_path, questions_path, reads = rest.split(":")
    index = open_index(Path(index_path), check_sources=False)
    questions = {row["id"]: row for row in (json.loads(line) for _, line in read_lines(Path(questions_path)))}
    rows = []
    if not reads:
        single = [row for row in questions.values() if row["kind"] == "single"]
        single.sort(key=lambda row: hashlib.sha256(row["id"].encode()).hexdigest())
        return make_items(name, [{"id": row["id"], "label": ""} for row in single[:num]], questions, index)
    for sheet in reads.split(","):
        path = Path(sheet) if Path(sheet).exists() else Path(questions_path).parent / sheet
        with path.open(encoding="utf-8") as lines:
            rows += list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [row for row in rows if row["planted"] == "false" and row["kind"] == "single"]
    return make_items(name, rows, questions, index)


def make_items(name: str, rows: list[dict[str, str]], questions: dict[str, Any], index: Index) -> list[Item]:
    wanted = {questions[row["id"]]["evidence"][0]["doc_id"] for row in rows}
    facts = {fact.id: fact for passage in index.passages() if passage.doc_id in wanted for fact in find_facts(passage)}
    known = [row for row in rows if row["id"] in facts]
    found = index.search([questions[row["id"]]["question"] for row in known], 20)
    return [
        Item(name, row, questions[row["id"]], facts[row["id"]], [hit.passage for hit in hits])
        for row, hits in zip(known, found, strict=True)
    ]


class Model:
    """A causal language model that scores lines for chat prompts, batched; `Lines` of the same model writes them."""

    def __init__(self, path: str, batch: int) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to(device).eval()
        self.batch, self.device = batch, device
        self.pad = self.tokenizer.eos_token_id

    def encode(self, messages: Sequence[Message]) -> list[int]:
        chat = [{"role": message.role, "content": "".join(map(plain, message.parts))} for message in messages]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return self.tokenizer(text, add_special_tokens=False).input_ids[-MAX_TOKENS:]

    @torch.no_grad()
    def score(self, prompts: Sequence[Sequence[Message]], lines: Sequence[str]) -> list[list[float]]:
        """Log-probs of the tokens of each line after its prompt."""
        rows = [
            (self.encode(prompt), self.tokenizer(line, add_special_tokens=False).input_ids)
            for prompt, line in zip(prompts, lines, strict=True)
        ]
        scores: list[list[float]] = []
        for first in range(0, len(rows), self.batch):
            some = rows[first : first + self.batch]
            ids, mask = self._pad([prompt + line for prompt, line in some])
            longest = max(len(line) for _, line in some)
            out = self.model(input_ids=ids, attention_mask=mask, logits_to_keep=longest + 1).logits.float()
            logps = out.log_softmax(-1)[:, :-1].gather(-1, ids[:, -longest:, None])[..., 0].cpu()
            scores += [logps[at, longest - len(line) :].tolist() for at, (_, line) in enumerate(some)]
        return scores

    def choose(self, prompts: Sequence[Sequence[Message]]) -> list[float]:
        """Log-odds of yes against no."""
        (yes,), (no,) = (self.tokenizer(word, add_special_tokens=False).input_ids for word in ("yes", "no"))
        odds: list[float] = []
        for logits in self._last_logits(prompts):
            odds += (logits[:, yes] - logits[:, no]).tolist()
        return odds

    @torch.no_grad()
    def _last_logits(self, prompts: Sequence[Sequence[Message]]) -> Iterator[torch.Tensor]:
        for first in range(0, len(prompts), self.batch):
            ids, mask = self._pad([self.encode(prompt) for prompt in prompts[first : first + self.batch]])
            yield self.model(input_ids=ids, attention_mask=mask, logits_to_keep=1).logits[:, -1].float()

    def _pad(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows and their masks, filled on the left."""
        width = max(map(len, rows))
        ids = torch.tensor([[self.pad] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        return ids.to(self.device), mask.to(self.device)


def plain(part: Any) -> str:
    return part.text if isinstance(part, Quoted) else str(part)


def judge(system: str, show: Callable[[str, str], str], item: Item) -> list[Message]:
    """A prompt for yes or no without the text, with the writer's examples before it."""
    examples = [
        message
        for _, question, answer, label in JUDGED
        for message in (Message("user", (show(question, answer),)), Message("assistant", (label,)))
    ]
    return [Message("system", (system,)), *examples, Message("user", (show(item.text, item.answer),))]


def show_question(question: str, answer: str) -> str:
    return f"Question: {question}"


def show_both(question: str, answer: str) -> str:
    return f"Question: {question}\nAnswer: {answer}"


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def put_into(items: list[Item], name: str, values: Sequence[float]) -> None:
    for item, value in zip(items, values, strict=True):
        item.signals[name] = value


def add_scores(model: Model, items: list[Item]) -> None:
    """Every signal that is a log-prob of a text that is there."""
    put = partial(put_into, items)
    put(
        "yes: with the text",
        model.choose([judge_question(show_place(item.passage), item.text, item.answer) for item in items]),
    )
    put("yes: question alone", model.choose([judge(ALONE, show_question, item) for item in items]))
    put("yes: answer fits", model.choose([judge(FITTING, show_both, item) for item in items]))
    questions = [item.text for item in items]
    given = model.score([word_question(item.fact, "plain", item.fact.name) for item in items], questions)
    bare = model.score([[Message("user", ("Write a question.",))]] * len(items), questions)
    put("question given passage, mean", [mean(logps) for logps in given])
    put("question given passage, least", [min(logps) for logps in given])
    put("question alone, mean", [mean(logps) for logps in bare])
    put("question, gain by passage", [mean(one) - mean(other) for one, other in zip(given, bare, strict=True)])
    answers = [item.answer for item in items]
    alone = model.score([answer_question(item.text, [item.passage.titled_text]) for item in items], answers)
    beside = model.score([answer_question(item.text, item.shown) for item in items], answers)
    closed = model.score([answer_question(item.text) for item in items], answers)
    put("answer given passage", [sum(logps) for logps in alone])
    put("answer given passages", [sum(logps) for logps in beside])
    put("answer from memory", [-sum(logps) for logps in closed])
    put("answer, gain by passages", [sum(one) - sum(other) for one, other in zip(beside, closed, strict=True)])


def write(
    lines: Lines, name: str, prompts: Sequence[Sequence[Message]], temperature: float, num: int
) -> list[list[str]]:
    """`num` lines for each prompt."""
    each = [prompt for prompt in prompts for _ in range(num)]
    found = asyncio.run(lines.write(name, each, temperature))
    return [found[at : at + num] for at in range(0, len(found), num)]


def add_written(model: Model, lines: Lines, items: list[Item]) -> None:
    """Every signal for which the model writes."""
    put = partial(put_into, items)
    asked = [word_question(item.fact, "plain", item.fact.name) for item in items]
    wordings = write(lines, "wordings", asked, 0.7, NUM_WORDINGS)
    put(
        "agreement of wordings",
        [mean([word_overlap(item.text, text) for text in texts]) for item, texts in zip(items, wordings, strict=True)],
    )
    again = [
        [Message("user", ("Say this question in other words, in one line: ", Quoted(item.text)))] for item in items
    ]
    reworded = write(lines, "again", again, 0.7, 4)
    flat = [(item, text) for item, texts in zip(items, reworded, strict=True) for text in texts]
    logps = model.score([answer_question(text, item.shown) for item, text in flat], [item.answer for item, _ in flat])
    chances = [math.exp(sum(row)) for row in logps]
    put("answer to other wordings", [mean(chances[at * 4 : at * 4 + 4]) for at in range(len(items))])


def add_answers(lines: Lines, items: list[Item]) -> None:
    """The signals by eight answers each: with the evidence, with its passage among others, and without any text."""
    put = partial(put_into, items)
    right = {
        name: share_right(lines, name, items, texts)
        for name, texts in {
            "p+": [[item.fact.sentence] for item in items],
            "p-": [[] for _ in items],
            "p+ among noise": [item.shown for item in items],
        }.items()
    }
    for name in ("p+", "p+ among noise"):
        put(name, right[name])
    put("V", [one - other for one, other in zip(right["p+"], right["p-"], strict=True)])


def share_right(lines: Lines, name: str, items: Sequence[Item], texts: Sequence[Sequence[str]]) -> list[float]:
    """Per question, the share of eight answers with these texts that are right."""
    asked = [answer_question(item.text, shown) for item, shown in zip(items, texts, strict=True)]
    return [
        mean([float(exact_match_score(line, tuple(item.answers))) for line in said])
        for item, said in zip(items, write(lines, name, asked, 1.0, 8), strict=True)
    ]


def add_difficulty(items: Sequence[Item], path: Path) -> None:
    """The pass rate and Dr. Zero's difficulty of each question, by the attempts in a run; both 0 if it has none."""
    with Run.open(path) as run:
        tried = {one.question: one for one in run.candidates() if one.num_attempts > 1}
    for item in items:
        one = tried.get(item.text)
        item.signals["difficulty"] = difficulty_reward(one.num_right, one.num_attempts) if one else 0.0
        item.signals["pass rate"] = one.num_right / one.num_attempts if one else 0.0
    print(f"{sum(item.text in tried for item in items)} of {len(items)} questions were attempted in {path}")


def auroc(good: Sequence[float], bad: Sequence[float]) -> str:
    """The chance that a good one is above a bad one (ties count half), with its bootstrap interval over questions."""
    if not good or not bad:
        return ""
    one, other = np.array(good)[:, None], np.array(bad)[None, :]
    wins = (one > other) + 0.5 * (one == other)
    chance = np.random.default_rng(0)
    drawn = [chance.multinomial(num, [1 / num] * num, NUM_RESAMPLES) / num for num in wins.shape]
    low, high = np.quantile(((drawn[0] @ wins) * drawn[1]).sum(axis=1), (0.025, 0.975))
    return f"{wins.mean():.3f} [{low:.3f}, {high:.3f}]"


def fit(features: np.ndarray, labels: np.ndarray, penalty: float = 3.0) -> np.ndarray:
    """Weights of a logistic regression with a bias in the last column, by gradient descent."""
    weights = np.zeros(features.shape[1])
    for _ in range(2000):
        chance = 1 / (1 + np.exp(-features @ weights))
        shrink = penalty * np.append(weights[:-1], 0.0)
        weights -= 0.5 * (features.T @ (chance - labels) + shrink) / len(labels)
    return weights


def cross_validate(items: list[Item], names: Sequence[str], folds: int = 10) -> list[float]:
    """Scores by a logistic regression over the signals that has not seen the question."""
    raw = np.array([[item.signals[name] for name in names] for item in items])
    order = np.argsort(np.argsort(raw, axis=0), axis=0) / len(items) - 0.5  # ranks: units do not matter
    features = np.hstack([order * 3.4, np.ones((len(items), 1))])
    labels = np.array([float(item.label == "good") for item in items])
    scores = np.zeros(len(items))
    fold = np.arange(len(items)) % folds
    for number in range(folds):
        weights = fit(features[fold != number], labels[fold != number])
        scores[fold == number] = features[fold == number] @ weights
    return scores.tolist()


def make_table(items: list[Item]) -> str:
    sets = sorted({item.set for item in items})
    names = sorted(items[0].signals)
    for item, score in zip(items, cross_validate(items, names), strict=True):
        item.signals["all, cross-validated"] = score
    lines = ["| signal | " + " | ".join([*sets, "all"]) + " |", "|---" * (len(sets) + 2) + "|"]
    for name in [*names, "all, cross-validated"]:
        cells = []
        for one in [*sets, ""]:
            some = [item for item in items if one in ("", item.set)]
            good = [item.signals[name] for item in some if item.label == "good"]
            cells.append(auroc(good, [item.signals[name] for item in some if item.label != "good"]))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--set", action="append", required=True, metavar="NAME=INDEX:QUESTIONS:READS,...")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--num", type=int, default=1000, help="questions of a set without reads")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--answers", action="store_true", help="only what a search and eight answers each tell")
    parser.add_argument("--solved", type=Path, metavar="RUN", help="run whose solver attempted the questions")
    args = parser.parse_args()
    torch.manual_seed(0)
    items = [item for given in args.set for item in read_set(given, args.num)]
    read = [item for item in items if item.label]
    lines = Lines(open_policy(args.model, max_rows=4 * args.batch), seed=0, concurrency=8 * args.batch)
    if not args.answers:
        model = Model(args.model, args.batch)
        add_scores(model, items)
        add_written(model, lines, read)
    add_answers(lines, read)
    if args.solved:
        add_difficulty(items, args.solved)
    table = make_table(read) if read else ""
    rows = [{"id": one.id, "set": one.set, "label": one.label, "question": one.text} | one.signals for one in items]
    args.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    counts = {label: sum(item.label == label for item in read) for label in ("good", "unclear", "wrong")}
    print(f"{len(read)} questions were read: {counts}\n{table}")


if __name__ == "__main__":
    main()
