"""The judge that decides what a report may say: a model only if it finds planted errors."""

import pytest

import tiny
from backups import EverySession
from quaere.api.report import open_reader
from quaere.chat.renderer import Renderer
from quaere.errors import SamplingFailed
from quaere.evaluation.judges.corruptions import PARAPHRASES
from quaere.evaluation.judges.probes import make_probes
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler


@pytest.fixture
def says(monkeypatch):
    def script(turns):
        tokenizer = tiny.tokenizer()
        policy = TokenPolicy(ScriptedSampler(tokenizer, turns), Renderer(tokenizer))
        monkeypatch.setattr("quaere.rollout.policy.open_policy", lambda model, **engine: policy)

    return script


def verdict(is_supported):
    return [f"<verdict>{'supported' if is_supported else 'unsupported'}</verdict>"]


async def test_a_model_that_supports_everything_is_replaced_by_rules(says):
    says(EverySession(verdict(True)))
    notes = []
    judges = await open_reader("model:yes", notes.append)
    assert judges.name == "checks" and "right on only 50%" in notes[-1]


async def test_a_model_that_finds_them_decides(says):
    truths = [probe.supports for probe in make_probes(10)] + [True, False] * len(PARAPHRASES)
    says({f"judge-{number}": verdict(truth) for number, truth in enumerate(truths)})
    notes = []
    judges = await open_reader("model:knows", notes.append)
    assert judges.name == "model:knows" and "right on 100%" in notes[-1]
    await judges.stop()


async def test_rules_are_not_tested_again():
    notes = []
    assert (await open_reader("checks", notes.append)).name == "checks" and notes == []


async def test_a_judge_that_cannot_be_tested_is_stopped(says, monkeypatch):
    says(EverySession([SamplingFailed("the endpoint is down")]))
    stopped = []

    async def stop(self):
        stopped.append(self.name)

    monkeypatch.setattr(ScriptedSampler, "stop", stop, raising=False)
    with pytest.raises(SamplingFailed, match="down"):
        await open_reader("model:away", lambda line: None)
    assert stopped == ["scripted"]
