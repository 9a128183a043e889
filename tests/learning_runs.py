"""`quaere.learn` on the village of `weighing.py`: a tiny model that knows the form, and questions on its bridges."""

import hashlib
import json
import re
import shutil

from quaere.policies.sampler import ChatReply
from quaere.rollout import policy
from quaere.rollout.policy import ChatPolicy
from quaere.search.index import open_index
from village import BRIDGES, PEOPLE, builder, payer
from weighing import LIMITS

DEEDS = {"built": builder, "paid for": payer}
# The prompt that offers to abstain is spelled letter by letter.
SMALL = {
    "solver.limits": {**LIMITS, "max_turns": 3, "sequence_tokens": 640},
    "solver.steps": 2,
    "solver.batch": 4,
    "solver.attempts": 8,  # the model is seldom right: one attempt in ten
    "solver.learner.learning_rate": 1e-3,
    "adapter.rank": 0,
    "engine.mode": "deterministic",
}
FORM = {
    "form.episodes": 12,
    "form.articles": 200,
    "form.lora_rank": 4,
    "form.topk": 1,
    "form.epochs": 1,
    "form.max_turns": 3,
    "form.turn_tokens": 512,
    "form.sequence_tokens": 4096,
    "form.tool_response_tokens": 256,
}


def write_checked_rows(index, path):
    """Two questions about each bridge, as `quaere questions --checked` writes them."""
    documents, rows = open_index(index), []
    for number, name in enumerate(BRIDGES):
        for deed, who in DEEDS.items():
            sentence = f"{who(number)} {deed} it."
            start = documents.document(name).index(sentence)
            span = {"doc_id": name, "start": start, "end": start + len(sentence), "text": sentence}
            counts = {"kind": "single", "facts": 1, "searches": 1, "hops": 1}
            asked = {"id": f"{name}#0:{start}", "question": f"Who {deed} {name}?", "answers": [who(number)]}
            rows.append({**asked, **counts, "evidence": [span]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def make_place(paths, folder, taught=True, recipe="search-r1"):
    """The arguments of `learn`: the corpus, the model, perhaps noted as taught, and the file of questions."""
    index, model, _ = paths
    shutil.copytree(model, folder / "model")
    if taught:
        (folder / "model" / "warmup.json").write_text(json.dumps({"recipe": recipe, "style": "brief"}))
    questions = write_checked_rows(index, folder / "questions.jsonl")
    return {"model": folder / "model", "questions": questions, "device": "cpu", "out": folder / "out"}


def digest(folder):
    """A hash of the weights in a folder."""
    found = sorted(folder.rglob("*.safetensors"))
    assert found
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()


def stop_at(text):
    """A callback for notes and progress that stops the work at the first line that begins like this."""

    def stop(*parts):
        if " ".join(map(str, parts)).startswith(text):
            raise ZeroDivisionError(text)

    return {"on_note": stop, "on_progress": stop}


# --------------------------------------------------------------------------------------------------------- the writer

NAMES = [f"{name} {kind}" for kind in ("Bridge", "Tower", "Mill") for name in BRIDGES]
BUILDERS = {name: f"{PEOPLE[number % 8]} {PEOPLE[(number // 8 + 3) % 8]}sen" for number, name in enumerate(NAMES)}


def write_pages(folder):
    """A folder of documents, each with one fact that can be asked for."""
    folder.mkdir()
    for name, who in BUILDERS.items():
        (folder / f"{name}.md").write_text(f"# {name}\n\n{name} was built by {who} for the old town.\n")
    return folder


class Reader:
    """Asks who built something, and answers it if it is shown the page."""

    name = "reader"

    async def reply(self, messages, params):
        system, asked = messages[0]["content"], messages[-1]["content"]
        if system.startswith("You check questions"):
            return ChatReply("yes", "end_of_turn", 1)
        if system.startswith("You answer questions"):
            shown, _, question = asked.rpartition("Question: ")
            who = BUILDERS.get(question.removeprefix("Who built ").removesuffix("?"), "nobody")
            return ChatReply(who if who in shown else "nobody", "end_of_turn", 2)
        answer, name = re.search(r'the answer is "(.*?)"\.', asked), re.search(r'Name "(.*?)"\.', asked)
        is_builder = answer and name and BUILDERS.get(name[1]) == answer[1]
        return ChatReply(f"Who built {name[1]}?" if is_builder else "Why?", "end_of_turn", 5)

    async def stop(self):
        pass


def let_write(monkeypatch):
    """Questions are written by the reader; every other part has the model itself."""
    real = policy.open_policy

    def open_policy(model, **options):
        return real(model, **options) if "interactive" in options else ChatPolicy(Reader())

    monkeypatch.setattr(policy, "open_policy", open_policy)


# ------------------------------------------------------------------------------------------------- changed documents

REWRITTEN, CONTRADICTED, REMOVED = NAMES[3], NAMES[20], NAMES[30]
BUILT = dict(BUILDERS)
MOVED = {REWRITTEN: "Tavi Bramsen", CONTRADICTED: "Petra Lundsen"}
ADDED = {"Vorn Mill": "Tavi Bramsen", "Quill Tower": "Petra Lundsen"}


def change_pages(pages):
    """One page says something else, one contradicts itself, one is gone, two are new."""
    text = "# {0}\n\n{0} was built by {1} for the old town.\n"
    (pages / f"{REWRITTEN}.md").write_text(text.format(REWRITTEN, MOVED[REWRITTEN]))
    page = pages / f"{CONTRADICTED}.md"
    page.write_text(f"{page.read_text()}\nAn error: {CONTRADICTED} was built by {MOVED[CONTRADICTED]}.\n")
    (pages / f"{REMOVED}.md").unlink()
    for name, who in ADDED.items():
        (pages / f"{name}.md").write_text(text.format(name, who))


def answer(job):
    """Right at the first attempt alone: the model itself reads no word of these pages, so it would learn nothing."""
    right, *_ = (*job.task.question.answers, "Nobody")
    return [f"<answer>{right if job.episode_id.endswith('-a0') else 'Nobody'}</answer>"]
