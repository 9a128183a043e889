"""`quaere.learn` on the village of `weighing.py`: a tiny model that knows the form, and questions on sixteen bridges."""

import hashlib
import json
import shutil

from quaere.search.index import open_index
from village import BRIDGES, builder, payer
from weighing import LIMITS

DEEDS = {"built": builder, "paid for": payer}
# The prompt that offers to abstain is spelled letter by letter.
SMALL = {
    "solver.limits": {**LIMITS, "max_turns": 3, "sequence_tokens": 640},
    "solver.steps": 2,
    "solver.batch": 4,
    "solver.attempts": 3,
    "solver.learner.learning_rate": 1e-3,
    "adapter.rank": 0,
    "engine.mode": "deterministic",
}
FORM = {
    "form.episodes": 12,
    "form.articles": 200,
    "form.facts": [1],
    "form.lora_rank": 4,
    "form.topk": 1,
    "form.epochs": 1,
    "form.max_turns": 2,
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


def make_place(paths, folder, taught=True):
    """The arguments of `learn`: the corpus, the model, perhaps noted as taught, and the file of questions."""
    index, model, _ = paths
    shutil.copytree(model, folder / "model")
    if taught:
        (folder / "model" / "warmup.json").write_text(json.dumps({"recipe": "search-r1", "style": "brief"}))
    questions = write_checked_rows(index, folder / "questions.jsonl")
    return {"model": folder / "model", "questions": questions, "device": "cpu", "out": folder / "out"}


def digest(folder):
    """A hash of the weights in a folder."""
    found = sorted(folder.rglob("*.safetensors"))
    assert found
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()
