"""Few-shot examples for the prompts of the question writer, all invented; they cover different kinds of text.

EXAMPLES[0][-1] == "How do I make tarnctl carry on when some of my backup volumes are broken?"
"""

from typing import Literal

from quaere.warmup.documents.askable_facts import Kind

Form = Literal["earlier", "later", "same"]
Style = Literal["plain", "everyday", "short"]


# A text of some kind, a span of it that is the answer, its kind, a style, the page's name ("" if it has none), and a
# question for the span in that style.
EXAMPLES: tuple[tuple[str, str, Kind, Style, str, str], ...] = (
    (  # a manual
        "File: tarnctl/restoring.html\nRestoring\nThe restore command reads the volumes in order and stops at the "
        "first damaged one. With --keep-going it skips damaged volumes and restores the rest.",
        "--keep-going",
        "option",
        "everyday",
        "",
        "How do I make tarnctl carry on when some of my backup volumes are broken?",
    ),
    (  # an encyclopedia
        "Ferrin Town Hall\nFerrin Town Hall stands at the old market. It was finished in 1811, and Marta Oleen "
        "painted its ceiling.",
        "Marta Oleen",
        "name",
        "plain",
        "Ferrin Town Hall",
        "Who painted the ceiling of Ferrin Town Hall?",
    ),
    (  # a reference
        "File: heron/settings.md\nHeron Server settings > Network\nidle_timeout: how long a connection may be silent "
        "before it is closed. Default: 90 seconds. Set it to 0 to keep connections open.",
        "90 seconds",
        "quantity",
        "everyday",
        "",
        "After how long does Heron Server drop a client that sends nothing, if I change no settings?",
    ),
    (  # a table
        "Mossberry API > Limits\nplan: free; requests per hour: 200; storage: 1 GB\nplan: team; requests per hour: "
        "5,000; storage: 50 GB",
        "5,000",
        "number",
        "plain",
        "",
        "How many requests per hour does the Mossberry API allow on the team plan?",
    ),
    (  # a change log
        "File: apps/pelikan/NEWS.txt\nNEWS > 2.4.1\n- The map no longer crashes on empty tracks.\n- Export to GPX has "
        "moved to the File menu.",
        "File menu",
        "name",
        "everyday",
        "",
        "Where do I find saving as GPX since Pelikan 2.4.1?",
    ),
    (  # documentation of code
        "quillpdf.Writer\nadd_page(width, height) appends an empty page. close() must be called once; it writes the "
        "index of pages and raises ClosedError if it is called again.",
        "ClosedError",
        "identifier",
        "plain",
        "",
        "Which error does close() of a quillpdf Writer raise if it is called again?",
    ),
    (  # questions with answers
        "File: support/garnet/faq.html\nFAQ > Can I undo a merge?\nYes, for 30 days. Open History, choose the merge "
        "and press Split. Comments written since then stay with the first record.",
        "30 days",
        "quantity",
        "plain",
        "",
        "For how long can a merge be undone in Garnet?",
    ),
    (  # a ticket
        "File: tickets/4127.txt\nPrinter queue stuck after update\nThe queue is stuck since the update to Lindow 6.2. "
        "Cause: the spooler starts before the disk is mounted. Fixed by setting spool_delay to 20.",
        "the spooler starts before the disk is mounted",
        "phrase",
        "everyday",
        "",
        "Why does my printer queue hang since the update to Lindow 6.2?",
    ),
    (  # prose
        "The Salt Road\nCaravans left Osk in spring. They carried salt as far as Veldin, nine days away, and came home "
        "with copper.",
        "copper",
        "phrase",
        "plain",
        "",
        "What did the caravans of the Salt Road bring home to Osk?",
    ),
    (  # a mail
        "Re: scanner on floor 3\nHi all, the new scanner saves to the share called inbox. Ask Jonna for the door "
        "code, and do not use it while the alarm test runs, on Mondays from 9 to 10.",
        "while the alarm test runs",
        "phrase",
        "everyday",
        "",
        "When am I not supposed to use the new scanner on floor 3?",
    ),
)
# A question and a search query for it.
QUERIES: tuple[tuple[str, str], ...] = (
    ("How do I make tarnctl carry on when some of my backup volumes are broken?", "tarnctl skip damaged volumes"),
    ("Who painted the ceiling of Ferrin Town Hall?", "Ferrin Town Hall ceiling painter"),
    ("After how long does Heron Server drop a client that sends nothing?", "Heron Server idle connection timeout"),
)
# A text, a name in it and a description of the name.
DESCRIPTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "Ferrin Town Hall\nIt was finished in 1811, and Marta Oleen painted its ceiling.",
        "Marta Oleen",
        "the painter of the ceiling of Ferrin Town Hall",
    ),
    (
        "File: tarnctl/restoring.html\nRestoring\nRestored files keep their owners only if the helper "
        "tarn-chown is installed.",
        "tarn-chown",
        "the helper that keeps the owners of files restored by tarnctl",
    ),
    (
        "Tidewater\nTidewater is a 1974 novel set in the port of Sall.",
        "Sall",
        "the port in which the novel Tidewater is set",
    ),
    (
        "Heron Server settings > Network\nConnections that are silent for too long are closed; see idle_timeout.",
        "idle_timeout",
        "the Heron Server setting for closing silent connections",
    ),
)
# A question, a proposed answer and the question for yes or no.
PROPOSALS: tuple[tuple[str, str, str], ...] = (
    (
        "Who painted the ceiling of Ferrin Town Hall?",
        "Ada Brandt",
        "Did Ada Brandt paint the ceiling of Ferrin Town Hall?",
    ),
    (
        "What is the default idle_timeout of Heron Server?",
        "90 seconds",
        "Is the default idle_timeout of Heron Server 90 seconds?",
    ),
    (
        "Which option makes tarnctl skip damaged volumes?",
        "--keep-going",
        "Does --keep-going make tarnctl skip damaged volumes?",
    ),
)
# A question about one of two pages, their names, how they are compared and the question about both.
COMPARISONS: tuple[tuple[str, tuple[str, str], Form, str], ...] = (
    (
        "When was Grey Coast released?",
        ("Grey Coast", "Low Water"),
        "earlier",
        "Which was released earlier, Grey Coast or Low Water?",
    ),
    (
        "Where was Marta Oleen born?",
        ("Marta Oleen", "Ada Brandt"),
        "same",
        "Were Marta Oleen and Ada Brandt born in the same place?",
    ),
    ("In which country does Sall lie?", ("Sall", "Ferrin"), "same", "Do Sall and Ferrin lie in the same country?"),
    (
        "When was Tidewater published?",
        ("Tidewater", "Marsh Light"),
        "later",
        "Which was published later, Tidewater or Marsh Light?",
    ),
    (
        "Who directed Grey Coast?",
        ("Grey Coast", "Low Water"),
        "same",
        "Were Grey Coast and Low Water directed by the same person?",
    ),
    (
        "When was Ada Brandt born?",
        ("Ada Brandt", "Marta Oleen"),
        "earlier",
        "Who was born earlier, Ada Brandt or Marta Oleen?",
    ),
)
# A text, a question, its answer, and whether it is good. The bad ones: unclear what they are about,
# several right answers, nonsense, an example's value.
JUDGED: tuple[tuple[str, str, str, Literal["yes", "no"]], ...] = (
    (
        "File: tarnctl/restoring.html\nRestoring\nWith --keep-going the restore command skips damaged volumes.",
        "Which option makes tarnctl restore skip damaged volumes?",
        "--keep-going",
        "yes",
    ),
    (
        "File: apps/pelikan/NEWS.txt\nNEWS > 2.4.1\nExport to GPX has moved to the File menu.",
        "What has moved?",
        "File menu",
        "no",
    ),
    (
        "File: heron/settings.md\nHeron Server settings\nidle_timeout: default 90 seconds. Allowed: 0 to 3600.",
        "Which value can I give to idle_timeout of Heron Server?",
        "90 seconds",
        "no",
    ),
    (
        "The Salt Road\nCaravans carried salt as far as Veldin and came home with copper.",
        "What did the caravans of the Salt Road bring home?",
        "copper",
        "yes",
    ),
    (
        "File: garnet/merge.html\nMerging\nChoose the merge in History and press Split to undo it.",
        "Which Split does the History of a merge press on the record?",
        "History",
        "no",
    ),
    (
        "File: quill/api.md\nWriter\nclose() raises ClosedError if it is called again.",
        "Which error does Writer.close() of quill raise when it is called twice?",
        "ClosedError",
        "yes",
    ),
    ("File: lindow/faq.txt\nFAQ\nThe example below uses disk 3 of 5.", "What is the number of the disk?", "3", "no"),
    (
        "File: lindow/faq.txt\nFAQ > Spooler\nThe spooler waits 20 seconds for the disk before it starts.",
        "How long does Lindow's spooler wait for the disk?",
        "20 seconds",
        "yes",
    ),
)
# A text, the kind of answer that is asked for, the page's name ("" if it has none), and a question that the text leaves
# open.
MISSING: tuple[tuple[str, Kind, str, str], ...] = (
    (
        "Ferrin Town Hall\nFerrin Town Hall stands at the old market. It was finished in 1811, and Marta Oleen "
        "painted its ceiling.",
        "name",
        "Ferrin Town Hall",
        "Who was the architect of Ferrin Town Hall?",
    ),
    (
        "File: tarnctl/restoring.html\nRestoring\nThe restore command reads the volumes in order and stops at the "
        "first damaged one. With --keep-going it skips damaged volumes and restores the rest.",
        "option",
        "",
        "With which option does tarnctl restore the files to another folder?",
    ),
    (
        "File: heron/settings.md\nHeron Server settings > Network\nidle_timeout: how long a connection may be silent "
        "before it is closed. Default: 90 seconds. Set it to 0 to keep connections open.",
        "number",
        "",
        "How many connections does Heron Server accept at the same time?",
    ),
    (
        "Mossberry API > Limits\nplan: free; requests per hour: 200; storage: 1 GB\nplan: team; requests per hour: "
        "5,000; storage: 50 GB",
        "quantity",
        "",
        "How much does the team plan of the Mossberry API cost per month?",
    ),
    (
        "Tidewater\nTidewater is a novel set in the port of Sall. It follows two pilots through one winter.",
        "date",
        "Tidewater",
        "In which year was the novel Tidewater published?",
    ),
    (
        "quillpdf.Writer\nadd_page(width, height) appends an empty page. close() must be called once; it writes the "
        "index of pages and raises ClosedError if it is called again.",
        "identifier",
        "",
        "Which method of a quillpdf Writer removes a page?",
    ),
    (
        "The Salt Road\nCaravans left Osk in spring. They carried salt as far as Veldin, nine days away, and came home "
        "with copper.",
        "phrase",
        "",
        "How did the caravans of the Salt Road cross the rivers?",
    ),
)
