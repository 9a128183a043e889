"""What a turn costs beside the model: CPU time of the rollout for rendering, parsing, searching and cutting results.

    python benchmarks/turns.py --index INDEX --tokenizer DIR --questions questions.jsonl

Episodes of the search-r1 dialect, two searches and an answer each, whose turns come from a script instead of a model.
`--attempts` episodes share a question and its queries, as in training. All of it happens in Python, in one process, so
at 1 ms a turn a GPU that plays 512 episodes of 3 turns waits up to 1.5 s for it in every step. Beside it the time that
tokenizing and searching alone would take: each text once, each query once.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from quaere.chat.renderer import Renderer
from quaere.dialects.registry import open_protocol
from quaere.policies.sampler import Sampled, SamplingParams
from quaere.records import Question, SolveTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenPolicy
from quaere.rollout.question_files import read_questions
from quaere.search.searcher import open_searcher

LIMITS = Limits(max_turns=7, turn_tokens=160, sequence_tokens=4864, tool_response_tokens=560, max_searches=6, topk=3)


class ScriptedSampler:
    """A sampler that searches for two parts of the question and then answers."""

    name = "script"
    lockstep = False

    def __init__(self, renderer: Renderer, queries: dict[str, Sequence[str]]) -> None:
        texts = {query: f"<search>{query}</search>" for pair in queries.values() for query in pair}
        self._ids = {query: tuple(renderer.write_turn(text)) for query, text in texts.items()}
        self._answer = tuple(renderer.write_turn("<answer>unknown</answer>"))
        self._queries = queries
        self._num_turns: dict[str, int] = {}

    def open(self, session: str) -> None:
        self._num_turns[session] = 0

    def close(self, session: str) -> None:
        self._num_turns.pop(session, None)

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        queries, number = self._queries[session.rsplit("/", 1)[0]], self._num_turns[session]
        self._num_turns[session] += 1
        ids = self._ids[queries[number]] if number < len(queries) else self._answer
        await asyncio.sleep(0)
        return Sampled(ids, (-0.1,) * len(ids), "stop_string")


async def main() -> None:
    args = read_arguments()
    from transformers import AutoTokenizer

    renderer, searcher = Renderer(AutoTokenizer.from_pretrained(args.tokenizer)), open_searcher(args.index)
    questions = read_questions(args.questions)[: args.limit]
    queries = {question.id: halves(question) for question in questions}
    protocol = open_protocol("search-r1", style="brief")
    jobs = [
        Job(protocol, SolveTask(question), episode_id=f"{question.id}/{number}")
        for question in questions
        for number in range(args.attempts)
    ]
    policy = TokenPolicy(ScriptedSampler(renderer, queries), renderer)  # type: ignore[arg-type]
    started, num_turns, texts = time.process_time(), 0, set[str]()
    async for episode in run_many(policy, jobs, searcher, LIMITS, concurrency=args.concurrency):
        num_turns += len(episode.turns)
        texts |= {turn.reply for turn in episode.turns}
    rollout_s = time.process_time() - started

    alone, started = open_searcher(args.index), time.process_time()
    for pair in queries.values():
        await alone.search(pair, LIMITS.topk)
    search_s, started = time.process_time() - started, time.process_time()
    for text in texts:
        renderer.tokenizer.encode(text, add_special_tokens=False)
    tokenize_s = time.process_time() - started

    floor_s = search_s + tokenize_s
    print(f"{len(jobs)} episodes, {num_turns} turns: {1e3 * rollout_s / num_turns:.2f} ms of CPU a turn")
    least = f"each query once {search_s:.1f} s, each text once {tokenize_s:.1f} s"
    print(f"{rollout_s:.1f} s; {least}: {rollout_s / floor_s:.1f} x")
    await alone.close()
    await searcher.close()


def halves(question: Question) -> tuple[str, str]:
    """Two queries, the first and the second half of the question's words."""
    words = question.text.split()
    return " ".join(words[: len(words) // 2 + 1]), " ".join(words[len(words) // 2 :])


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--attempts", type=int, default=8)
    parser.add_argument("--concurrency", type=int, default=512)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
