"""A command whose reader leaves ends in peace; any other broken pipe, and a crash of native code, are told."""

import os
import socket
import subprocess
import sys

import pytest

# A command in which the last word happens instead of its work.
START = """
import faulthandler, os, sys
from quaere.cli import doctor
from quaere.cli.options import command
from quaere.cli.main import main
from quaere.cli.terminal import open_console

def crash(args):
    faulthandler._sigsegv()

def lose_server(args):
    raise BrokenPipeError(32, "Broken pipe")

def print_once(args):
    print("one line")

def print_table_for_ever(args):
    while True:
        open_console(os.environ["STREAM"] == "stderr").print("a line of many")

def print_for_ever(args):
    while True:
        print("a line of many", file=getattr(sys, os.environ["STREAM"]), flush=True)

doctor.fill = command(globals()[sys.argv[1]])
sys.exit(main(["doctor"]))
"""


def run(doing, *, stderr=subprocess.PIPE, **options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"STREAM": options.pop("stream", "stdout")}
    return subprocess.Popen([sys.executable, "-c", START, doing], text=True, stderr=stderr, env=environment, **options)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("doing", ["print_for_ever", "print_table_for_ever"])
def test_a_reader_that_leaves_ends_the_command_in_peace(doing, stream):
    command = run(doing, stdout=subprocess.PIPE, stream=stream)
    with command, getattr(command, stream) as lines:
        assert lines.readline() == "a line of many\n"
        lines.close()
        assert command.wait(timeout=60) == 0
        assert stream == "stderr" or command.stderr.read() == ""


def closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def closed_socket():
    ours, theirs = socket.socketpair()
    ours.close()
    return theirs.detach()


@pytest.mark.parametrize("make", [closed_pipe, closed_socket])
def test_so_it_does_if_all_was_still_in_the_buffer(make):
    output = make()
    try:
        with run("print_once", stdout=output) as command:
            assert command.stderr.read() == ""
    finally:
        os.close(output)
    assert command.returncode == 0


@pytest.mark.parametrize("number", [1, 2])
def test_a_command_runs_without_an_output(number):
    with run("print_once", stdout=subprocess.PIPE, stderr=None, preexec_fn=lambda: os.close(number)) as command:
        assert command.stdout.read() == ("one line\n" if number == 2 else "")
    assert command.returncode == 0


def test_another_broken_pipe_is_no_success():
    with run("lose_server", stdout=subprocess.DEVNULL) as command:
        assert "BrokenPipeError" in command.stderr.read()
    assert command.returncode == 1


def test_a_crash_of_native_code_is_told():
    with run("crash", stdout=subprocess.DEVNULL) as command:
        said = command.stderr.read()
    assert "Segmentation fault" in said and "in crash" in said
    assert command.returncode < 0
