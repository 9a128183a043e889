"""What a run opens and closes, what it refuses before it begins, and what a dry run says; no model is loaded."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from quaere.errors import BadInput
from quaere.rollout.episode import Limits
from quaere.training import run_setup
from quaere.training.estimate import MemoryParts, RunEstimate, machine_bytes
from quaere.training.given import PracticeConfig, plan_practice
from quaere.training.settings import (
    AdapterSettings,
    EngineSettings,
    RunConfig,
    SamplingSettings,
    SearchSettings,
    ValidationSettings,
)
from quaere.training.solver_phase import SolverConfig


class Ending:
    """A searcher, and a policy of roles, that say when they are ended."""

    def __init__(self, ended):
        self.ended, self.policy = ended, self

    async def stop(self):
        self.ended.append("policy")

    async def close(self):
        self.ended.append("searcher")


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_opens_its_roles_as_the_config_says_and_ends_them(monkeypatch, fails):
    asked, ended = [], []
    config = RunConfig(
        model="m",
        index="i",
        seed=5,
        engine=EngineSettings(max_rows=7),
        adapter=AdapterSettings(rank=4),
        sampling=SamplingSettings(top_k=3),
        search=SearchSettings(replays=1),
    )
    monkeypatch.setattr(run_setup, "open_index", lambda path: "index")
    monkeypatch.setattr(run_setup, "LocalSearcher", lambda index: Ending(ended))
    monkeypatch.setattr(run_setup, "open_actors", lambda *given: asked.append(given) or Ending(ended))

    async def run():
        async with run_setup.open_run(config, ("proposer", "solver"), SimpleNamespace(note=print)) as opened:
            assert opened.index == "index" and ended == []
            if fails:
                raise BadInput("out of questions")

    if fails:
        with pytest.raises(BadInput, match="out of questions"):
            asyncio.run(run())
    else:
        asyncio.run(run())
    assert ended == ["policy", "searcher"]
    assert asked == [(config, ("proposer", "solver"), print)]


def test_an_address_that_is_none_is_refused_before_a_run_is_made(monkeypatch):
    monkeypatch.setattr(run_setup, "open_documents", lambda config, recipe: None)
    with pytest.raises(BadInput, match="ftp://host"):
        run_setup.check_openable(RunConfig(model="m", index="i", search_url="http://a,ftp://host"), "drzero", [])


GIB = 2**30


@pytest.fixture
def config(monkeypatch, tmp_path):
    """Ten questions, and a model that takes two and a half gibibytes; what is below a mebibyte is left out."""
    parts = {"weights": 2 * GIB, "kv_cache": GIB // 2, "adapters": 2**20 - 1, "logits": 2**20}
    memory = structs.replace(MemoryParts(*[0] * 10), **parts)
    estimate = RunEstimate("cpu", 1_234_567, 4_321, memory)
    monkeypatch.setattr(run_setup, "resolve_model", lambda name: SimpleNamespace(path=name))
    monkeypatch.setattr(run_setup, "estimate_run", lambda path, **how: estimate)
    monkeypatch.setattr(run_setup, "machine_bytes", lambda device: 2.5 * GIB + 2**20 + 2**20)
    rows = [{"question": f"Who {number}?", "answers": ["Venn"]} for number in range(10)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    solver = SolverConfig(steps=50, attempts=4, max_draws=2, limits=Limits(sequence_tokens=100, max_searches=6))
    engine = EngineSettings(device="cpu")
    return PracticeConfig(model="m", questions=str(tmp_path / "train.jsonl"), solver=solver, engine=engine)


def test_a_dry_run_on_given_questions_by_hand(config):
    """A batch of 256 is one of all ten questions; drawn twice each, they last for two steps."""
    assert dict(plan_practice(config)) == {
        "questions": "10, each seen 2 times",
        "validation": "none, as validation.share=0.1 of 10 questions is fewer than 8; the last checkpoint counts",
        "solver": "tool-call, at most 5 turns and 6 searches",
        "solver phase": "2 steps of 10 questions; a step plays 40 episodes, 4,000 tokens at most",
        "weights": "1,234,567, of which 4,321 are trained in each role",
        "memory": "about 2.5 GiB on the cpu: weights 2.00, kv cache 0.50, logits 0.00",
    }


def test_a_dry_run_counts_the_questions_that_training_holds_back(config):
    """Eighty of a hundred ask about one sentence and stay together: of the fifty wanted, twenty can be held back."""
    evidence = [{"doc_id": "halm", "start": 0, "end": 16, "text": "Venn built Halm."}]
    rows = [{"question": f"Who {number}?", "answers": ["Venn"]} for number in range(100)]
    rows = [row | ({"evidence": evidence} if number < 80 else {}) for number, row in enumerate(rows)]
    Path(config.questions).write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = structs.replace(config, validation=ValidationSettings(share=0.5))
    assert dict(plan_practice(config))["questions"].startswith("80, ")


@pytest.mark.parametrize(("device", "preset"), [("cpu", ", or --preset demo, which is for a CPU"), ("cuda", "")])
def test_a_dry_run_says_what_to_change_where_the_memory_is_too_small(config, monkeypatch, device, preset):
    memory = structs.replace(MemoryParts(*[0] * 10), activations=46 * GIB, kv_cache=56 * GIB, weights=GIB)
    monkeypatch.setattr(run_setup, "estimate_run", lambda path, **how: RunEstimate(device, 1, 1, memory))
    monkeypatch.setattr(run_setup, "machine_bytes", lambda device: 24 * GIB)
    assert dict(plan_practice(config))["does not fit"] == (
        "there are 24.0 GiB here; take --set engine.max_rows=N with a lower N, and "
        f"--set solver.learner.gradient_checkpointing=true (a proposer's too){preset}"
    )
    monkeypatch.setattr(run_setup, "machine_bytes", lambda device: 103 * GIB)
    assert "does not fit" not in dict(plan_practice(config))


def test_the_memory_of_this_machine_is_known():
    assert GIB / 4 < machine_bytes("cpu") < 2**50
