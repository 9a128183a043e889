"""Names of 0.1.0 are still read, in options, settings, runs and exports, and one line says the new one."""

import json
import tarfile
import warnings
from pathlib import Path

import pytest

from quaere.cli.main import build_parser, main
from quaere.dialects.notes import read_notes
from quaere.dialects.trained_role import find_role
from quaere.errors import BadInput, OldName, warn_old_name
from quaere.recipes.registry import find_recipe
from quaere.training.config import load_config

FIXTURE = Path(__file__).parents[1] / "fixtures/run-0.1.0.tar.xz"
SETTING = "solver.protocol is now called solver.dialect"


def load(*assignments, recipe="drzero", file=None, given=None):
    found = find_recipe(recipe)
    return load_config(
        found.schema, presets=found.presets, preset=None, file=file, assignments=assignments, given=given or {}
    )


@pytest.mark.parametrize(
    "command", [["ask", "Who?", "--index", "i"], ["eval", "--model", "m"], ["evolve", "drzero", "--model", "m"]]
)
def test_the_old_option_is_read(command):
    with pytest.warns(OldName, match="^--solver-protocol is now called --solver-dialect$"):
        args = build_parser().parse_args([*command, "--solver-protocol", "evalact"])
    assert args.solver_dialect == "evalact"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build_parser().parse_args([*command, "--solver-dialect", "evalact"]) == args


def test_the_command_line_says_it_in_one_line(capsys):
    assert main(["evolve", "drzero", "--solver-protocol", "evalact", "--print-config"]) == 0
    said = capsys.readouterr()
    assert said.err == "quaere: --solver-protocol is now called --solver-dialect\n"
    assert "  dialect: evalact\n" in said.out and "  protocol: evalact\n" not in said.out


def test_other_warnings_are_shown_as_before(recwarn):
    assert main(["models", "list"]) == 0
    warnings.warn("something else", UserWarning, stacklevel=1)
    assert [str(one.message) for one in recwarn] == ["something else"]


def test_the_old_setting_is_read(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("solver:\n  protocol: evalact\n")
    for old in (lambda: load("solver.protocol=evalact"), lambda: load(file=file)):
        with pytest.warns(OldName, match=f"^{SETTING}$"):
            assert old().solver.dialect == "evalact"
    file.write_text("solver:\n  protocol: evalact\n  dialect: evalrar\n")
    with pytest.warns(OldName), pytest.raises(BadInput, match=r"solver\.dialect is given twice"):
        load(file=file)


def test_the_old_setting_of_evidence_is_read(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("evidence:\n  protocol: false\n")
    for old in (lambda: load("evidence.protocol=false", recipe="eve"), lambda: load(recipe="eve", file=file)):
        with pytest.warns(OldName, match=r"^evidence\.protocol is now called evidence\.cite$"):
            assert old().evidence.cite is False


def test_a_recipe_without_the_setting_does_not_know_its_old_name():
    with pytest.raises(BadInput, match=r"unknown setting solver\.protocol"):
        load("solver.protocol=evalact", recipe="score")


def test_a_name_that_is_read_twice_is_spoken_of_once():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(2):
            warn_old_name("old", "new")
            load("solver.protocol=evalact")
    assert [str(one.message) for one in said] == ["old is now called new", SETTING]


def test_a_stored_run_is_read(tmp_path, monkeypatch, capsys):
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "old-run/run"
    text = (run / "config.yaml").read_text()
    assert text.count("  protocol: tool-call\n") == 1
    text = text.replace("  protocol: tool-call\n", "  protocol: search-r1\n")
    (run / "config.yaml").write_text(text + "evidence:\n  protocol: true\n")
    with pytest.warns(OldName) as warned:
        role = find_role(run, "solver")
    assert (role.dialect, role.evidence) == ("search-r1", True)
    assert sorted(str(one.message) for one in warned) == ["evidence.protocol is now called evidence.cite", SETTING]
    (run / "config.yaml").write_text(text)
    # The same values by their new name are no change.
    assert main(["evolve", "--resume", str(run), "--set", "solver.dialect=evalact"]) == 2
    said = capsys.readouterr().err
    assert said.count(SETTING) == 1
    assert "the config has changed: solver.dialect: search-r1 -> evalact" in said


def test_an_export_is_read(tmp_path):
    (tmp_path / "quaere.json").write_text(json.dumps({"style": "brief", "protocol": "evalact"}))
    with pytest.warns(OldName, match="protocol in .*quaere.json is now called dialect"):
        notes = read_notes(tmp_path)
    assert (notes.style, notes.dialect) == ("brief", "evalact")
