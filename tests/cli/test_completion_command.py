"""The scripts that `quaere completion` prints."""

import shutil
import subprocess

import pytest

from quaere.cli.completion import SHELLS
from quaere.cli.main import COMMANDS, main


def script(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_commands_options_and_values(shell, capsys):
    text = script(shell, capsys)
    for name in COMMANDS:
        assert name.replace("_", "-") in text
    for word in ("print-config", "sequence-tokens", "report-dpo", "drzero"):
        assert word in text


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["quaere", "ev"], {"evolve", "eval"}),
        (["quaere", "evolve", "--pr"], {"--print-config", "--preset"}),
        (["quaere", "evolve", "evalr"], {"evalrar"}),
        (["quaere", "runs", "s"], {"show"}),
        (["quaere", "search", "--index", "not"], {"notes-index"}),
    ],
)
def test_bash_completes(typed, offered, tmp_path, capsys):
    """The script is read by bash, and its function asked as bash asks it."""
    (tmp_path / "script").write_text(script("bash", capsys), encoding="utf-8")
    (tmp_path / "notes-index").mkdir()
    (tmp_path / "note.txt").touch()
    (tmp_path / "ask").write_text(
        'source ./script\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n'
        '_shtab_quaere quaere "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n',
        encoding="utf-8",
    )
    subprocess.run(["bash", "-n", "script"], cwd=tmp_path, check=True, timeout=60)
    asked = subprocess.run(
        ["bash", "ask", *typed], cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True
    )
    assert {line.rstrip("/ ") for line in asked.stdout.splitlines()} == offered, asked.stderr
