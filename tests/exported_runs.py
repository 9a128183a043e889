"""Runs with checkpoints that can be exported."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import tiny
from quaere.runs import Run
from quaere.runs.checkpoints import save_checkpoint
from quaere.training.adapters import add_adapters
from quaere.training.learner import save_weights
from quaere.training.settings import AdapterSettings

CONFIG = """\
model: {model}
index: notes-index
iterations: 1
prompts: brief
solver:
  steps: 2
  limits: {{max_turns: 3, turn_tokens: 16, sequence_tokens: 640, tool_response_tokens: 160, max_searches: 4, topk: 2}}
"""


def make_base(root):
    tiny.model().save_pretrained(root / "base")
    tiny.tokenizer().save_pretrained(root / "base")
    (root / "base" / "warmup.json").write_text('{"style": "brief", "teacher": "oracle"}')
    return root / "base"


def make_run(root, name, write, steps=(1, 2)):
    with Run.create(root / "runs" / name, "evolve", {"recipe": "drzero"}, config=CONFIG.format(model=root / "base")):
        pass
    for step in steps:
        save_checkpoint(root / "runs" / name / "checkpoints", step, lambda folder, step=step: write(folder, step), {})
    return root / "runs" / name


def adapted_model(step):
    """A base with two adapters that do something; at first peft's do nothing."""
    base = tiny.model()
    torch.manual_seed(step)  # after the model, which sets the seed for itself
    model = add_adapters(base, ("proposer", "solver"), AdapterSettings(rank=4, alpha=8)).eval()
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    return model


@cache
def _saved_adapters(step):
    """The files of both adapters: what peft makes of a model, it makes once for every step."""
    model = adapted_model(step)
    with TemporaryDirectory() as place:
        for role in ("proposer", "solver"):
            save_weights(model, Path(place) / role, role)
        return {path.relative_to(place): path.read_bytes() for path in Path(place).glob("*/*")}


def write_adapters(folder, step):
    for path, data in _saved_adapters(step).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def write_models(folder, step):
    save_weights(tiny.model(seed=10 + step), folder / "solver")
