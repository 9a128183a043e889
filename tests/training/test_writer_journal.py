"""A question writer that is killed goes on where it was."""

import pytest
from reading_endpoint import PAGES, Reader, make_index

from quaere.errors import BadInput
from quaere.rollout.policy import ChatPolicy
from quaere.warmup.documents import writer
from quaere.warmup.documents.journal import Batch, Journal
from quaere.warmup.documents.writer import WriterSettings, write_questions


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


@pytest.mark.parametrize("last", [5, 60])
async def test_a_writer_that_was_killed_goes_on_after_its_last_whole_batch(pages_index, tmp_path, monkeypatch, last):
    monkeypatch.setattr(writer, "_FIRST", 3)
    monkeypatch.setattr(writer, "_BATCH", 2)
    settings = WriterSettings(drafts=40, topk=2)
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


def test_a_journal_of_other_settings_is_refused_once_it_holds_something(tmp_path):
    path = tmp_path / "own.jsonl.unfinished"
    Journal(path, {"seed": 0})
    assert not path.exists()
    Journal(path, {"seed": 1}).add(Batch(0, [], []))
    with pytest.raises(BadInput, match="was begun with another model, index or settings"):
        Journal(path, {"seed": 0})
    assert list(Journal(path, {"seed": 1}).batches) == [0]
