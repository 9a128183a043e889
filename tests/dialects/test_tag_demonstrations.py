"""Demonstrations in the tag dialects: what keeps one from being taught."""

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.tag_dialects import TagSolver, TagTurns
from quaere.records import Question, SolveTask
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

TASK = SolveTask(Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",)))
LIMITS = Limits(max_turns=3, turn_tokens=500, sequence_tokens=9000, tool_response_tokens=500)


async def faults_of(dialect, note):
    """Fault and flaw of a demonstration with one search and this note on what it found."""
    turns, tokenizer = TagTurns(dialect, "none" if dialect == "search-r1" else "note"), tiny.tokenizer()
    script = [turns.search("I look.", "Halm bridge"), turns.answer("So.", "Orsolya Venn", note=note)]
    policy = TokenPolicy(ScriptedSampler(tokenizer, {TASK.id: script}), Renderer(tokenizer))
    episode = await run_episode(policy, TagSolver(dialect), tiny.ListSearcher(), TASK, LIMITS)
    assert episode.outcome.text == "Orsolya Venn"
    return turns.find_fault(episode), turns.find_flaw(episode)


async def test_notes_are_needed_where_the_dialect_has_them_and_should_hold_the_answer():
    for dialect in ("evalrar", "autorefine"):
        assert await faults_of(dialect, "Orsolya Venn built it.") == ("", "")
        assert await faults_of(dialect, "No builder is named.") == ("", "no note holds the answer")
        assert await faults_of(dialect, "") == ("what a search found was not noted", "no note holds the answer")
    assert await faults_of("search-r1", "") == await faults_of("search-r1", "ignored") == ("", "")
