"""Processes of their own that begin with torch and the recipes loaded: to kill a run costs no new start of Python.

They are forks of a server, and that is a fork of the process that runs the tests, made when all it needs is loaded and
before its first test (see `conftest.py`): no thread of a test is at work then, which might hold what a fork waits for.
"""

import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
import warnings
from contextlib import suppress
from types import SimpleNamespace

LIBRARIES = (
    "quaere.recipes.drzero",
    "quaere.recipes.eve",
    "quaere.warmup.imitation",
    "quaere.policies.native.sampler",
    "quaere.search.index_build",
    "bm25s",
    "peft",
    "sklearn.cluster",
    "sklearn.feature_extraction.text",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",  # the package alone loads it later
)
NUMBER = struct.Struct("q")
_server = None


def open_server():
    """Fork the server, which ends with this process."""
    global _server
    for name in LIBRARIES:
        with suppress(ImportError):  # of an extra: who needs it says so
            importlib.import_module(name)
    _server, theirs = socket.socketpair()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads: that which talks to pytest-xdist only waits
        child = os.fork()
    if not child:
        try:
            _server.close()
            _serve(theirs)
        finally:
            os._exit(0)
    theirs.close()


class Process:
    """A function of a module in a process of its own, with the streams, the folder and the environment of its caller.

    Process(target=child, args=(words, 3)).start()
    """

    def __init__(self, target, args=(), stdout=1, stderr=2):
        self._work = (target, args, os.getcwd(), dict(os.environ))
        self._streams = (stdout, stderr)
        self.pid = self.exitcode = None

    def start(self):
        self._status, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_server, [b"."], [theirs.fileno(), *self._streams])
        self.pid = self._read_number()
        self._status.sendall(pickle.dumps(self._work))
        self._status.shutdown(socket.SHUT_WR)

    def join(self, timeout=None):
        if self.exitcode is None and select.select([self._status], [], [], timeout)[0]:
            self.exitcode = self._read_number()
            self._status.close()

    def is_alive(self):
        self.join(timeout=0)
        return self.exitcode is None

    def kill(self):
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)

    def _read_number(self):
        return NUMBER.unpack(self._status.recv(NUMBER.size, socket.MSG_WAITALL))[0]


class Value:
    """A whole number that such a process can set."""

    def __init__(self, value, file=None):
        self._file = file or tempfile.NamedTemporaryFile()  # noqa: SIM115 (it is there as long as the number)
        self.value = value

    @property
    def value(self):
        with open(self._file.name, "rb") as file:
            return NUMBER.unpack(file.read())[0]

    @value.setter
    def value(self, value):
        with open(self._file.name, "wb") as file:
            file.write(NUMBER.pack(value))

    def __reduce__(self):
        return Value, (self.value, SimpleNamespace(name=self._file.name))


# ----------------------------------------------------------------------------------------------------------- the server


def _serve(requests):
    """Fork for every request, and tell who asked how it ended."""
    sys.settrace(None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    awake, ended = os.pipe()
    for end in (awake, ended):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
    asking = {}
    while True:
        ready, _, _ = select.select([requests, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
            with suppress(ChildProcessError):
                while (found := os.waitpid(-1, os.WNOHANG))[0]:
                    with asking.pop(found[0]) as status, suppress(OSError):
                        status.sendall(NUMBER.pack(os.waitstatus_to_exitcode(found[1])))
        if requests not in ready:
            continue
        message, handles, _, _ = socket.recv_fds(requests, 1, 3)
        if not message:
            return
        child = os.fork()
        if not child:
            requests.close()
            for other in asking.values():
                other.close()
            signal.set_wakeup_fd(-1)
            try:
                code = _work(*handles)
            except KeyboardInterrupt:  # another one, while it was leaving
                code = 130
            os._exit(code)
        for handle in handles[1:]:
            os.close(handle)
        asking[child] = socket.socket(fileno=handles[0])
        asking[child].sendall(NUMBER.pack(child))


def _work(asked, stdout, stderr):
    """Do what was asked, as the main program of a process would; its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for handle, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (stdout, 1), (stderr, 2)):
        os.dup2(handle, stream)
        os.close(handle)
    # By lines, as a program's errors are written: a server says where it listens, and somebody waits for that.
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(stream, mode, buffering=1, closefd=False) for stream, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    code = 1
    try:
        with socket.socket(fileno=asked) as question:
            target, args, folder, environment = pickle.load(question.makefile("rb"))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.modules["torch"].set_num_threads(1)
        target(*args)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a program that is ending keeps its exit code
        threading._shutdown()  # waits for threads, as at the end of every program
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
    return code


# ------------------------------------------------------------------------------------------------------------- commands


def start(target, *args, stream="stderr"):
    """A function in a process of its own, and what it writes to the stream, to read while it works."""
    reader, writer = os.pipe()
    process = Process(target=target, args=args, **{stream: writer})
    process.start()
    os.close(writer)
    return process, os.fdopen(reader, encoding="utf-8")


def start_command(*words, source=None):
    """A command of `quaere` in a process of its own, and its errors to read while it works.

    With a source, the package is loaded anew from there.
    """
    return start(_command, list(map(str, words)), source and str(source))


def run_command(*words, source=None):
    """The exit code of a command in a process of its own, and its errors."""
    process, stderr = start_command(*words, source=source)
    with stderr:
        said = stderr.read()
    process.join()
    return process.exitcode, said


def _command(words, source):
    if source:
        for name in [name for name in sys.modules if name.partition(".")[0] == "quaere"]:
            del sys.modules[name]
        sys.path.insert(0, source)
    from quaere.cli.main import main

    sys.exit(main(words))
