"""What was taught is kept, and taught anew once anything it follows from has changed."""

import pytest

import building


@pytest.fixture
def teach_to(tmp_path, monkeypatch):
    """A function that asks for the lesson in a folder of this name, and returns how often it was taught so far."""
    monkeypatch.setattr(building, "PACKAGE", building.SOURCES)
    monkeypatch.setattr(building, "KEPT", tmp_path / "kept")
    taught = []

    def teach(folder):
        taught.append(folder)
        (folder / "weights").write_text(f"lesson {len(taught)}")

    def ask(name):
        building.teach_once(tmp_path / name, "lesson", teach)
        return (tmp_path / name / "weights").read_text()

    return ask


def test_the_same_sources_teach_once(teach_to):
    assert [teach_to(name) for name in "ab"] == ["lesson 1", "lesson 1"]


def test_changes_to_a_copy_stay_there(teach_to, tmp_path):
    teach_to("a")
    (tmp_path / "a" / "weights").write_text("spoilt")
    assert teach_to("b") == "lesson 1"


def test_other_sources_teach_anew_and_the_old_is_dropped(teach_to, tmp_path, monkeypatch):
    teach_to("a")
    monkeypatch.setattr(building, "digest", lambda: "other")
    assert teach_to("b") == "lesson 2"
    assert [path.name for path in (tmp_path / "kept").iterdir() if path.is_dir()] == ["lesson-other"]


def test_who_is_killed_while_teaching_leaves_nothing_to_use(teach_to, tmp_path):
    (tmp_path / "kept" / "lesson-new").mkdir(parents=True)
    (tmp_path / "kept" / "lesson-new" / "weights").write_text("half of it")
    assert teach_to("a") == "lesson 1"


def test_a_package_elsewhere_starts_with_what_is_kept_and_keeps_nothing(teach_to, tmp_path, monkeypatch):
    teach_to("a")
    monkeypatch.setattr(building, "PACKAGE", tmp_path / "copy" / "quaere")
    assert teach_to("b") == "lesson 1"
    monkeypatch.setattr(building, "digest", lambda: "other")
    assert [teach_to(name) for name in "cd"] == ["lesson 2", "lesson 3"]


def test_a_history_is_played_once_and_given_back_exactly(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "PACKAGE", building.SOURCES)
    monkeypatch.setattr(building, "KEPT", tmp_path / "kept")
    played = []

    async def play():
        played.append(1)
        return [0.1 + 0.2, 1 / 3]

    assert [building.play_once(tmp_path / name, "history", play) for name in "ab"] == [[0.1 + 0.2, 1 / 3]] * 2
    assert len(played) == 1
    monkeypatch.setattr(building, "PACKAGE", tmp_path / "copy" / "quaere")
    assert building.play_once(tmp_path / "c", "history", play) == [0.1 + 0.2, 1 / 3]
    assert len(played) == 2


@pytest.mark.parametrize(("changed", "matters"), [("training/learner.py", True), ("cli/main.py", False)])
def test_the_digest_follows_what_teaches(tmp_path, monkeypatch, changed, matters):
    found = []
    for text in ("x = 1", "x = 2"):
        file = tmp_path / "src" / "quaere" / changed
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        monkeypatch.setattr(building, "SOURCES", tmp_path / "src" / "quaere")
        monkeypatch.setattr(building, "TESTS", tmp_path / "tests")
        building._sources.cache_clear()
        found.append(building.digest())
    building._sources.cache_clear()
    assert (len(set(found)) == 2) == matters
