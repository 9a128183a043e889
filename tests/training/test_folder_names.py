"""Names of folders that their documents use."""

import pytest

from quaere.records import Passage
from quaere.warmup.documents.page_names import FolderNames


def passage(doc_id, text, title=""):
    return Passage(f"{doc_id}#0", doc_id, title, text, 0, len(text))


@pytest.mark.parametrize(
    ("doc_id", "name"),
    [
        ("notes/icewm-common/faq.txt", "IceWM"),  # a part of the folder's name
        ("notes/heron/help/start.html", "Heron"),  # of the folder above, as it is written most often
        ("notes/heron/news.txt", "Heron"),  # also for a document that does not use it
        ("notes/tarn/readme.txt", ""),  # one document of four says it
        ("notes/readme.txt", ""),  # "notes" is no word of theirs
        ("start.html", ""),  # without a folder
    ],
)
def test_a_folder_is_called_as_its_documents_call_it(doc_id, name):
    passages = [
        passage("notes/icewm-common/faq.txt", "How do I start IceWM?"),
        passage("notes/heron/help/start.html", "Start Heron. Heron then opens, and heron.log with it."),
        passage("notes/heron/news.txt", "The window is wider."),
        *(passage(f"notes/tarn/{number}.txt", f"This is {'tarn' if number == 3 else 'it'}.") for number in range(4)),
        passage("start.html", "Start here."),
    ]
    assert FolderNames(passages).find(doc_id) == name


def test_three_documents_of_ten_are_enough():
    for num, name in ((3, "Heron"), (2, "")):
        passages = [passage(f"heron/{at}.txt", "Heron" if at < num else "It") for at in range(10)]
        assert FolderNames(passages).find("heron/1.txt") == name


def test_titles_count_and_short_names_do_not():
    assert FolderNames([passage("heron/a.txt", "It flies.", title="Heron manual")]).find("heron/a.txt") == "Heron"
    assert FolderNames([passage("it/a.txt", "It flies.")]).find("it/a.txt") == ""
