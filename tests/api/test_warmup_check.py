"""The held-out tasks that a model is asked after it was taught several dialects: in which limits it plays them."""

from evaluated import answer, episode, search
from quaere.api import warmup
from quaere.api.warmup_settings import WarmupSettings
from quaere.rollout.episode import Limits


def test_turns_longer_or_more_than_were_demonstrated_are_not_sampled(monkeypatch, tmp_path):
    played, told = [], []

    async def play(settings, held_out, index, limits):
        assert index.is_dir() and len(held_out) == 1
        played.extend(limits(dialect) for dialect in ("roomy", "narrow"))
        return {}

    monkeypatch.setattr(warmup, "_play_tasks", play)
    allowed = {"roomy": Limits(max_turns=12, turn_tokens=512), "narrow": Limits(max_turns=3, turn_tokens=5)}
    given = {"recipe": "drzero", "also": ("eve",), "model": "m", "out": tmp_path / "warm", "articles": 200}
    shown = [episode(search(), answer("Venn")), episode(search(), search(), search(), answer("Venn"))]  # of 7 tokens
    assert warmup.measure_dialects(WarmupSettings(**given), shown, allowed.__getitem__, told.append) == {}
    assert [(limits.max_turns, limits.turn_tokens) for limits in played] == [(5, 8), (3, 5)]
    assert told[0] == "playing 1 held-out tasks with the model that was taught"
    assert list(tmp_path.iterdir()) == []
