"""The page Ask for tests: a real agent over real documents, whose model follows a script."""

import asyncio
import json
import time
from contextlib import contextmanager

import pytest

import quaere
import tiny
from backups import SENTENCE, call
from quaere.chat.renderer import Renderer
from quaere.records import Evidence
from quaere.rollout.policy import TokenPolicy
from quaere.viewer.ask_queue import AskHistory, AskQueue, AskRecord
from scripted import ScriptedSampler
from viewing import make_episode

FILLER = "Nothing of note happened on that day, and the log says so at some length.\n\n"
LONG_DOCUMENT = "# Backups\n\n" + FILLER * 120 + f"They run at night. {SENTENCE} All went well.\n\n" + FILLER * 120
QUOTED = f"<evidence>{SENTENCE}</evidence><answer>May 2019</answer>"


class ByQuestion(ScriptedSampler):
    """Follows the script of the question that stands in the prompt; "hold" waits until it is let go on."""

    def __init__(self, tokenizer, scripts):
        super().__init__(tokenizer, {}, name="scripted")
        self.by_question = scripts
        self.resume = asyncio.Event()
        self.cancelled = []

    async def sample(self, session, token_ids, params):
        if session not in self._scripts:
            prompt = self._tokenizer.decode(token_ids)
            script = next(turns for words, turns in self.by_question.items() if words in prompt)
            self._scripts = {**self._scripts, session: script}
        script = self._scripts[session]
        if script[len(self.seen.get(session, ()))] == "hold":
            try:
                await self.resume.wait()
            except asyncio.CancelledError:
                self.cancelled.append(session)
                raise
        return await super().sample(session, token_ids, params)


def write_documents(folder):
    """A folder `docs`, with a document whose sentence stands far from its beginning, and its index."""
    (folder / "docs").mkdir()
    (folder / "docs" / "ops.md").write_text(LONG_DOCUMENT)
    (folder / "docs" / "oss.md").write_text("# The Oss\n\nThe Oss rises in the Korrin hills.\n")
    return quaere.Index.build(folder / "docs", folder / "index")


SCRIPTS = {
    "move the backups": [call("moved backups Oslo"), QUOTED],
    "made up": [call("backups Oslo"), "<evidence>We never moved.</evidence><answer>never</answer>"],
    "without proof": [call("moved backups Oslo"), "<answer>May 2019</answer>"],
    "out of nowhere": [call("Korrin"), "<answer>Atlantis</answer>"],
    "no answer": [call("Korrin")] * 9,
    "not said": [call("Korrin"), call("Korrin hills"), "<answer>Not in these documents.</answer>"],
    "wait for it": [call("moved backups Oslo"), "hold"],
    "breaks": [ZeroDivisionError("a fault of the engine")],
}


@contextmanager
def open_queue(index, scripts=None, *, history=None, evidence=True, **limits):
    """A queue over an agent; its `sampler` is the scripted one."""
    tokenizer = tiny.tokenizer()
    sampler = ByQuestion(tokenizer, scripts or SCRIPTS)

    def opened(model, **engine):
        return TokenPolicy(sampler, Renderer(tokenizer))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quaere.rollout.policy.open_policy", opened)
        agent = quaere.Agent("a-model", index, evidence=evidence, turn_tokens=512, sequence_tokens=20_000, **limits)
    with agent, AskQueue(agent, history or AskHistory()) as queue:
        queue.sampler = sampler
        yield queue


def wait_until(check):
    """Wait for a condition that another thread brings about."""
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.01)


def ask_and_wait(queue, question):
    """The record of a question once it is over."""
    id = queue.add(question).id
    wait_until(lambda: queue.find(id).is_over)
    return queue.find(id)


def fill_history(queue, payloads):
    """A question for every payload, in its text, its turns, its answer and its document: ask-0, ask-1, ..."""
    for number, text in enumerate(payloads):
        sentence = f"Orsolya Venn built it {number}."
        start = queue.index.document(text).index(sentence)
        state = ("answered", "answered", "unanswered", "failed")[number % 4]
        queue.history.add(
            AskRecord(
                id=f"ask-{number}",
                question=text,
                time="2025-03-01T10:15:00+00:00",
                state=state,
                answer=text if state == "answered" else "",
                model=text,
                index=text,
                turns=make_episode(f"e{number}", title=text, ends=state == "answered").turns,
                evidence=Evidence(text, start, start + len(sentence), sentence) if number % 4 == 0 else None,
                span=text,
                problem=text,
            )
        )


def write_payloads(folder, payloads):
    """An index whose documents have payloads as ids, titles and text."""
    rows = [
        {"id": text, "title": text, "text": f"{text} Orsolya Venn built it {number}. {text}"}
        for number, text in enumerate(payloads)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return quaere.Index.build(folder / "corpus.jsonl", folder / "hostile-index")
