"""A question writer that is killed goes on where it was."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from types import SimpleNamespace

import pytest
from reading_endpoint import PAGES, Reader, make_index

from preloaded import Process, Value
from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.rollout import policy
from quaere.rollout.policy import ChatPolicy
from quaere.warmup.documents import writer
from quaere.warmup.documents.checked_question import Batch, Dropped, Journal, WriterSettings
from quaere.warmup.documents.writer import write_questions


@pytest.fixture(scope="module")
def pages_index(tmp_path_factory):
    return make_index(tmp_path_factory.mktemp("pages"), PAGES.items())


class Killed(Exception):
    pass


class Dying(Reader):
    """Dies at its call of this number."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    async def reply(self, messages, params):
        if len(self.asked) >= self.last:
            raise Killed
        return await super().reply(messages, params)


@pytest.mark.parametrize(("last", "share"), [(5, 0.0), (60, 0.0), (60, 0.5), (160, 0.5)])
async def test_a_writer_that_was_killed_goes_on_after_its_last_whole_batch(
    pages_index, tmp_path, monkeypatch, last, share
):
    monkeypatch.setattr(writer, "_FIRST", 3)
    monkeypatch.setattr(writer, "_BATCH", 2)
    settings = WriterSettings(drafts=40, topk=2, unanswerable=share)
    undisturbed, path = Reader(), tmp_path / "own.jsonl.unfinished"
    whole = await write_questions(ChatPolicy(undisturbed), pages_index, settings)
    with pytest.raises(Killed):
        await write_questions(ChatPolicy(Dying(last)), pages_index, settings, journal=Journal(path, {"seed": 0}))
    with path.open("ab") as file:
        file.write(b'{"number":7,"kept":[')  # the kill cut a line
    journal, reader = Journal(path, {"seed": 0}), Reader()
    num_finished = len(journal.batches)
    again = await write_questions(ChatPolicy(reader), pages_index, settings, journal=journal)
    assert again.questions == whole.questions and again.num_drafts == whole.num_drafts
    assert sorted(again.dropped, key=str) == sorted(whole.dropped, key=str)
    assert (len(reader.asked) < len(undisturbed.asked)) == bool(num_finished)
    assert bool(num_finished) == (last > 5)


class Grouping(Dying):
    """Notes the prompts that it is asked at once: those that come until none is left unanswered."""

    def __init__(self, last=10**9):
        super().__init__(last)
        self.groups, self.num_open = [], 0

    async def reply(self, messages, params):
        if not self.num_open:
            self.groups.append([])
        self.groups[-1].append((messages[0]["content"], messages[-1]["content"], params.seed))
        self.num_open += 1
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return await super().reply(messages, params)
        finally:
            self.num_open -= 1


@pytest.mark.parametrize("last", [60, 110, 160])
async def test_an_exact_writer_that_goes_on_asks_the_same_at_once(pages_index, tmp_path, monkeypatch, last):
    """A model computes a prompt differently beside others, in the last bit: so its answers depend on the groups."""
    monkeypatch.setattr(writer, "_FIRST", 3)
    monkeypatch.setattr(writer, "_BATCH", 2)
    settings, path = WriterSettings(drafts=40, topk=2, unanswerable=0.5, concurrency=4), tmp_path / "own.unfinished"
    whole, again = Grouping(), Grouping()
    await write_questions(ChatPolicy(whole), pages_index, settings, exact=True)
    with pytest.raises(Killed):
        await write_questions(ChatPolicy(Grouping(last)), pages_index, settings, journal=Journal(path, {}), exact=True)
    journal = Journal(path, {})
    assert journal.batches
    await write_questions(ChatPolicy(again), pages_index, settings, journal=journal, exact=True)
    assert 0 < len(again.groups) < len(whole.groups) and again.groups == whole.groups[-len(again.groups) :]


@pytest.mark.parametrize("last", [40, 70, 110])
async def test_minutes_are_those_of_all_calls(pages_index, tmp_path, monkeypatch, last):
    monkeypatch.setattr(writer, "_FIRST", 3)
    monkeypatch.setattr(writer, "_BATCH", 2)
    clock = [0.0]
    monkeypatch.setattr(writer, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Slow(Dying):
        async def reply(self, messages, params):
            clock[0] += 1  # second
            return await super().reply(messages, params)

    settings, path = WriterSettings(drafts=40, topk=2, minutes=0.9), tmp_path / "own.unfinished"
    whole = await write_questions(ChatPolicy(Slow(10**9)), pages_index, settings, exact=True)
    journal = Journal(path, {})
    with contextlib.suppress(Killed):
        await write_questions(ChatPolicy(Slow(last)), pages_index, settings, journal=journal, exact=True)
    again = await write_questions(ChatPolicy(Slow(10**9)), pages_index, settings, journal=Journal(path, {}), exact=True)
    # Only the batch that the kill cut may be paid for twice.
    assert 3 < whole.num_drafts <= again.num_drafts <= whole.num_drafts + 2 < 40


def test_a_journal_of_other_settings_is_refused_once_it_holds_something(tmp_path):
    path = tmp_path / "own.jsonl.unfinished"
    Journal(path, {"seed": 0})
    assert not path.exists()
    Journal(path, {"seed": 1}).add(Batch(0, [], []))
    with pytest.raises(BadInput, match="was begun with another model, index or settings"):
        Journal(path, {"seed": 0})
    assert list(Journal(path, {"seed": 1}).batches) == [0]


def test_a_damaged_journal_is_said_in_one_line(tmp_path):
    path = tmp_path / "own.jsonl.unfinished"
    Journal(path, {"seed": 0}).add(Batch(0, [], []))
    path.write_bytes(path.read_bytes().replace(b'"kept":[', b'"kept":[[') + b"{}\n")
    with pytest.raises(BadInput, match="is damaged") as caught:
        Journal(path, {"seed": 0})
    assert str(path) in caught.value.hint


def test_a_journal_that_is_not_utf_8_is_said_in_one_line(tmp_path):
    path = tmp_path / "own.jsonl.unfinished"
    Journal(path, {"seed": 0}).add(Batch(0, [], [Dropped("a#0:1", "Who?", "Venn", "single: is unclear")]))
    path.write_bytes(path.read_bytes().replace(b"Venn", b"Ve\xffn"))
    with pytest.raises(BadInput, match="is damaged"):
        Journal(path, {"seed": 0})


# ----------------------------------------------------------------------------------------------- kills of the command

TOUCHES = {"open", "os", "shutil", "fcntl"}


class Moments:
    """Counts moments of three kinds, and kills the process at one of them.

    "file": a file is touched. "reply": the endpoint is asked. "write": the journal writes a line, of which a part is
    on the disk when the kill comes; the part is drawn from the number of the moment.
    """

    def __init__(self, kind, moment):
        self.kind, self.moment, self.num_seen = kind, moment, 0

    def pass_by(self, kind):
        self.num_seen += kind == self.kind
        if kind == self.kind and self.num_seen == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def touch(self, event, args):
        if event.partition(".")[0] in TOUCHES:
            self.pass_by("file")

    def append(self, journal, line):
        if self.kind == "write" and self.num_seen + 1 == self.moment:
            cut = random.Random(self.moment).randint(0, len(line))
            with journal.path.open("ab") as file:
                file.write(line[:cut])
        self.pass_by("write")
        APPEND(journal, line)


APPEND = Journal._append


def run_and_die(words, kind, moment, counted):
    """The command with small batches; dies at a moment, or counts the moments if that is 0."""
    moments = Moments(kind, moment)

    class Counting(Reader):
        async def reply(self, messages, params):
            moments.pass_by("reply")
            return await super().reply(messages, params)

    writer._FIRST, writer._BATCH = 2, 1
    policy.open_policy = lambda *args, **options: ChatPolicy(Counting())
    Journal._append = lambda journal, line: moments.append(journal, line)
    sys.addaudithook(moments.touch)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        code = main(words)
    if counted is not None:
        counted.value = moments.num_seen
    os._exit(code)


def start(words, kind="file", moment=0, counted=None):
    process = Process(target=run_and_die, args=(words, kind, moment, counted))
    process.start()
    process.join()
    return process.exitcode


NUM_KILLS = 8


@pytest.fixture(params=["file", "reply", "write"])
def series(request, pages_index, tmp_path):
    """The kind of moment, the command, its file and journal, what it writes undisturbed, and moments to die at."""
    out, counted = tmp_path / "own.jsonl", Value(0)
    words = ["questions", "--checked", "--index", str(pages_index.path), "--model", "reader", "--out", str(out)]
    words += ["--drafts", "40", "--topk", "2", "--unanswerable", "0.25"]
    assert start(words, request.param, counted=counted) == 0
    expected = out.read_bytes()
    out.unlink()
    draw = random.Random(request.param)
    moments = sorted(draw.sample(range(1, counted.value + 1), NUM_KILLS))
    return request.param, words, out, tmp_path / "own.jsonl.unfinished", expected, moments


@pytest.mark.timeout(600)
def test_a_killed_command_run_again_writes_what_it_would_have_written(series):
    kind, words, out, journal, expected, moments = series
    for moment in moments:
        assert start(words, kind, moment) == -signal.SIGKILL
        assert not out.exists() or out.read_bytes() == expected  # nothing, or all of it
        if not out.exists():
            assert start(words) == 0 and not journal.exists()
        assert out.read_bytes() == expected
        out.unlink()
        journal.unlink(missing_ok=True)


@pytest.mark.timeout(600)
def test_a_command_that_is_killed_again_and_again_ends_like_one_that_was_not(series):
    kind, words, out, _, expected, moments = series
    codes = [start(words, kind, moment) for moment in moments if not out.exists()]
    assert codes.count(-signal.SIGKILL) >= 3  # what is finished is not done again, so later moments may not come
    if not out.exists():
        assert start(words) == 0
    assert out.read_bytes() == expected


def test_a_full_disk_leaves_no_torn_batch_in_the_journal(tmp_path):
    """Another batch that ends after it would make all of the journal unreadable."""
    resource = pytest.importorskip("resource", reason="limits on file size exist on POSIX only")
    path = tmp_path / "journal"
    journal = Journal(path, {})
    journal.add(Batch(0, [], []))
    large = Batch(1, [], [Dropped("d", "q" * 9000, "Venn", "is unclear")])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5000, hard))
    try:
        with pytest.raises(BadInput, match="cannot write"):
            journal.add(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(journal.batches) == [0]
    journal.add(Batch(2, [], []))
    assert list(Journal(path, {}).batches) == [0, 2]
