"""Some steps of GRPO under a template that opens thoughts and under three markups of calls; stopped and resumed.

Over six seeds of each and ten steps, at least 85 % of the turns of the last step followed the protocol, and 14 of its
16 episodes called in the template's own markup.
"""

import pytest
from test_drzero_resume import contents, digest

import thinking_village
from building import build_once
from practice_runs import make_practice, run_practice
from quaere.chat.renderer import Renderer
from quaere.records import Answer, Search
from quaere.runs.checkpoints import find_checkpoints
from village_runs import Told
from weighing import write_questions

OWN = {
    "opens a thought": '<tool_call>{"name": "search"',
    "functions": "<function=search>",
    "arguments": "<arg_key>query_list</arg_key>",
    "call channels": "<|channel|>commentary to=functions.search",
}
STOPPED_AT = 1


class Stopped(Exception):
    """The run was stopped."""


class Deadly(Told):
    """Stops the run after some steps."""

    def step(self, report):
        super().step(report)
        if len(self.steps) == STOPPED_AT:
            raise Stopped


@pytest.mark.parametrize(
    ("name", "num_steps"),
    [
        ("functions", 2),  # both opens thoughts and has a markup
        *(pytest.param(name, 10, marks=pytest.mark.slow) for name in thinking_village.TEMPLATES),
    ],
)
def test_steps_keep_the_format_and_a_stopped_run_ends_the_same(name, num_steps, tmp_path, tmp_path_factory):
    index, model = build_once(tmp_path_factory, f"thinking {name}", lambda folder: thinking_village.build(folder, name))
    paths = index, model, write_questions(tmp_path / "questions.jsonl")
    changes = {"solver.steps": num_steps, "solver.limits": thinking_village.LIMITS, "validation.questions": 0}
    changes["solver.learner.learning_rate"] = 1e-4  # larger steps lead a small model anywhere
    config = make_practice("search-r1", paths, "solver.dialect=tool-call", **changes)
    renderer = Renderer(thinking_village.tokenizer(name))
    with run_practice(tmp_path / "straight", "search-r1", config) as run:
        last = [run.episode(row.id) for row in run.index() if row.step == num_steps]
        assert run.metrics_at(num_steps)["gradient/norm"] > 0
    # The format holds: turns are searches and answers, written in the template's own markup.
    turns = [turn for episode in last for turn in episode.turns]
    followed = [isinstance(turn.action, Search | Answer) for turn in turns]
    assert len(last) == 16 and sum(followed) >= 0.7 * len(turns)
    assert sum(OWN[name] in renderer.decode(episode.token_ids) for episode in last) >= 10
    # Only sampled tokens are trained on: neither the template's thought nor a joint.
    for episode in last:
        assert [any(part.loss_mask) for part in episode.segments] == [p.origin == "model" for p in episode.segments]
        assert all(all(part.loss_mask) for part in episode.segments if part.origin == "model")
        joints = {part.token_ids[-1] for part in episode.segments if part.origin == "environment"}
        assert joints <= {renderer.joints["tool"].opening[-1], renderer.joints["user"].opening[-1]}
    with pytest.raises(Stopped):
        run_practice(tmp_path / "stopped", "search-r1", config, Deadly())
    assert find_checkpoints(tmp_path / "stopped" / "checkpoints")[-1].step < num_steps
    run_practice(tmp_path / "stopped", "search-r1", config).close()
    assert digest(tmp_path / "stopped") == digest(tmp_path / "straight")
    assert contents(tmp_path / "stopped") == contents(tmp_path / "straight")
