"""A command whose reader leaves ends in peace; any other broken pipe, and a crash of native code, are told."""

import subprocess
import sys

import pytest

# A command in which the last word happens instead of its work.
START = """
import faulthandler, os, sys
from quaere.cli import doctor
from quaere.cli.main import main

def crash(args):
    faulthandler._sigsegv()

def lose_server(args):
    raise BrokenPipeError(32, "Broken pipe")

def print_for_ever(args):
    while True:
        print("a line of many", file=getattr(sys, os.environ["STREAM"]), flush=True)

doctor.run = globals()[sys.argv[1]]
sys.exit(main(["doctor"]))
"""


def run(doing, *, source=START, **options):
    return subprocess.Popen([sys.executable, "-c", source, doing], text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_leaves_ends_the_command_in_peace(stream):
    command = run("print_for_ever", stdout=subprocess.PIPE, env={"STREAM": stream})
    with command, getattr(command, stream) as lines:
        assert lines.readline() == "a line of many\n"
        lines.close()
        assert command.wait(timeout=60) == 0
        assert stream == "stderr" or command.stderr.read() == ""


def test_another_broken_pipe_is_no_success():
    with run("lose_server", stdout=subprocess.DEVNULL) as command:
        assert "BrokenPipeError" in command.stderr.read()
    assert command.returncode == 1


def test_a_crash_of_native_code_is_told():
    with run("crash", stdout=subprocess.DEVNULL) as command:
        said = command.stderr.read()
    assert "Segmentation fault" in said and "in crash" in said
    assert command.returncode < 0
