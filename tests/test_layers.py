"""Who may import whom: downwards only, and never sideways except where this table says so."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import quaere

ROOT = Path(quaere.__file__).parent

# From the top floor to the ground; rooms on one floor do not import each other.
FLOORS = [
    {"__main__"},
    {"cli"},
    {"viewer"},
    {"api"},
    {"serving"},
    {"recipes", "evaluation"},
    {"warmup"},
    {"training"},
    {"dialects"},
    {"rollout", "runs"},
    {"policies", "search", "worlds"},
    {"chat", "rewards", "objectives"},
    {"disk", "endpoint", "grouping", "plugins", "setting_types", "whole_words"},
    {"records", "errors"},
]
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# Modules of one name, each playing the same part in its package; any other name belongs to one module.
SAME_PART = {
    # the settings of a recipe, of self-play and of every run
    "config",
    # a command, the function or class of `import quaere` behind it, and what both show
    *("index", "report", "warmup", "run", "world", "questions"),
    # an interface and its implementation; two registries; two evaluations; wire formats and applications of two servers
    *("sampler", "registry", "scores", "wire", "app"),
}
# A room may use the version, and nothing else that lies outside all rooms.
TOP = {"", "__version__"}


def room_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imported_names(path):
    """Every `quaere.NAME` a file imports, wherever in the file, with its line; `from` imports name what they take."""
    return list(_imported_names(path))


def statements(body):
    """Every statement, whatever it stands in; expressions, of which there are far more, hold none."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, field, ()))


def _imported_names(path):
    for node in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the floor they reach"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == "quaere":
                yield name.split(".")[1:], node.lineno


def imported_rooms(path):
    for parts, line in imported_names(path):
        yield [*parts, ""][0], line


def needed_files(path, found):
    """The file, what it imports and what those import in turn; less `api/run.py`, whose `resume` trains."""
    if path in found or path == ROOT / "api/run.py":
        return found
    found.add(path)
    for parts, _ in imported_names(path):
        places = [ROOT.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)]
        for file in [one for place in places for one in (place.with_suffix(".py"), place / "__init__.py")]:
            if file.is_file():
                needed_files(file, found)
    return found


def violations(files):
    for path in files:
        room = room_of(path)
        if room == "__init__":
            continue
        for other, line in imported_rooms(path):
            if other in TOP or other == room:
                continue
            if other not in FLOOR_OF or FLOOR_OF[other] <= FLOOR_OF[room]:
                yield f"{path.relative_to(ROOT)}:{line}: {room} imports {other}"


def test_every_room_is_on_a_floor():
    rooms = {room_of(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    assert rooms <= set(FLOOR_OF)


def test_imports_run_downwards():
    assert list(violations(ROOT.rglob("*.py"))) == []


@pytest.mark.parametrize("command", ["ask", "eval"])
def test_asking_and_evaluating_need_nothing_that_trains(command):
    rooms = {room_of(path) for path in needed_files(ROOT / "cli" / f"{command}.py", set())}
    assert {"api", "dialects", "rollout"} <= rooms and not rooms & {"training", "recipes", "warmup"}


def shared_names(files):
    counts = Counter(path.stem for path in files if path.stem != "__init__")
    return {name for name, count in counts.items() if count > 1}


def test_modules_of_one_name_play_the_same_part():
    assert shared_names(ROOT.rglob("*.py")) == SAME_PART
    assert shared_names([Path("records/facts.py"), Path("worlds/facts.py"), Path("worlds/dice.py")]) == {"facts"}


def test_an_upward_or_sideways_import_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    for name, text in {
        "chat/a.py": "def f():\n    from quaere.rollout.episode import Limits\n",
        "search/b.py": "import quaere.policies.sampler\n",
        "policies/c.py": "from quaere import worlds\n",
        "rollout/d.py": "from quaere.chat.markup import find_blocks\nfrom quaere import __version__\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = sorted(violations(tmp_path.rglob("*.py")))
    assert [line.split(": ")[1] for line in found] == [
        "chat imports rollout",
        "policies imports worlds",
        "search imports policies",
    ]


def test_only_the_bridge_touches_transformers_internals():
    """Elsewhere only the public loaders may be used, and never `generate`."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert ".generate(" not in text, path
        if path.name != "bridge.py":
            assert "transformers.modeling" not in text, path
            assert "_attn_implementation" not in text, path
