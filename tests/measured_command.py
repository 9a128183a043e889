"""A command of Quaere in a process of its own, with the memory and the time it took.

    measure(["index", "docs", "--out", "index"]) -> Used(code=0, out="...", err="", peak_mib=180.2, seconds=3.1)

As a script it runs the command: python measured_command.py REPORT index docs --out index
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PDF_SECONDS = 1  # instead of 20: several files use it up


class Used(NamedTuple):
    code: int
    out: str
    err: str
    peak_mib: float
    seconds: float


def start(words, report):
    """The process of a command, whose peak is in the file `report` once it has ended."""
    command = [sys.executable, __file__, str(report), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def measure(words, timeout_s=900):
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        report, began = Path(folder, "peak"), time.monotonic()
        process = start(words, report)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return Used(process.returncode, out, err, float(report.read_text()), time.monotonic() - began)


def _peak_mib():
    """The peak of this program. Linux counts what was in memory before `exec`, so that of the tests, to `ru_maxrss`."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)  # bytes on macOS


def _main():
    from quaere.cli.main import main
    from quaere.search.formats import pdf

    pdf._SECONDS = PDF_SECONDS
    try:
        return main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_text(str(_peak_mib()))


if __name__ == "__main__":
    sys.exit(_main())
