"""`import quaere`: cheap, complete, and known to type checkers."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import quaere


def loaded_by(code):
    """The packages that are loaded after some code ran in a Python of its own."""
    code = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_loads_nothing_but_the_package_itself():
    import_alone = loaded_by("import quaere")
    assert import_alone & {"torch", "transformers", "numpy", "msgspec", "asyncio", "rich", "bm25s", "httpx"} == set()


@pytest.mark.parametrize("names", [["Index", "Run", "BadInput"], quaere.__all__])
def test_no_name_needs_torch_before_a_model_is_opened(names):
    assert loaded_by(f"import quaere\nfor name in {names}: getattr(quaere, name)") & {"torch", "transformers"} == set()


def test_every_public_name_can_be_had():
    found = {name: getattr(quaere, name) for name in quaere.__all__}
    assert all(callable(value) for value in found.values())
    assert found["Index"].__name__ == "Index" and set(quaere.__all__) <= set(dir(quaere))
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        _ = quaere.Agnet


def test_type_checkers_see_every_public_name():
    """Those read the imports under TYPE_CHECKING, which never run."""
    tree = ast.parse(Path(quaere.__file__).read_text(encoding="utf-8"))
    branches = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    names = {alias.name: node.module for branch in branches for node in branch.body for alias in node.names}
    assert sorted(names) == quaere.__all__
    for name, module in names.items():
        assert name == "warmup" or getattr(quaere, name) is getattr(sys.modules[module], name)


def test_the_package_of_the_warm_up_is_also_the_function():
    import quaere.warmup.lessons as lessons

    assert quaere.warmup.lessons is lessons
    with pytest.raises(quaere.BadInput, match="drzero"):
        quaere.warmup("drzro", model="m", out="warm")
