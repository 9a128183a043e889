import pytest

from backups import EverySession, scripted, write_notes


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The current folder, with `notes/` and `questions.jsonl` in it."""
    monkeypatch.chdir(tmp_path)
    write_notes(tmp_path)
    return tmp_path


@pytest.fixture
def says(monkeypatch):
    """Let whatever model is opened say these turns in every episode; returns the models that were let go of."""

    def script(turns, scripts=None):
        stopped = []
        opened = scripted(scripts or EverySession(turns), stopped)
        for module in ("quaere.rollout.policy", "quaere.api.warmup_documents"):
            monkeypatch.setattr(f"{module}.open_policy", opened)
        return stopped

    return script
