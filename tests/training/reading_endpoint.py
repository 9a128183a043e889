"""An endpoint that writes what tables say and answers what it is shown, and the pages it is mostly asked about."""

import json
import re

from quaere.errors import SamplingFailed
from quaere.policies.sampler import ChatReply
from quaere.rollout.policy import ChatPolicy
from quaere.search.index_build import build_index
from quaere.warmup.documents.checked_question import WriterSettings
from quaere.warmup.documents.writer import write_questions

PAGES = {
    "Halm Bridge": "Halm Bridge crosses the River Oss near the old mill. It was built by Orsolya Venn for the town.",
    "Orsolya Venn": "Orsolya Venn (4 May 1671 – 1740) was a mason of the coast. She was born in Korrin Vale.",
    "Marta Oleen": "Marta Oleen (12 June 1690 – 1755) was a painter of great ceilings. She was born in Korrin Vale.",
    "Ada Brandt": "Ada Brandt (3 March 1702 – 1771) was a pilot of small boats. She was born in Sall Haven.",
    "Ferrin Hall": "Ferrin Hall was finished after many years. Its ceiling was painted by Marta Oleen for nothing.",
}
WORDINGS = {
    ("Halm Bridge", "Orsolya Venn"): "Who built Halm Bridge?",
    ("Halm Bridge", "River Oss"): "What does Halm Bridge cross?",
    ("Orsolya Venn", "4 May 1671"): "When was Orsolya Venn born?",
    ("Orsolya Venn", "1740"): "In which year did Orsolya Venn die in 1740?",  # gives its answer away
    ("Orsolya Venn", "mason"): "What was the trade of Orsolya Venn?",
    ("Orsolya Venn", "Korrin Vale"): "Where was Orsolya Venn born?",
    ("Marta Oleen", "12 June 1690"): "When was Marta Oleen born?",
    ("Marta Oleen", "1755"): "When did Marta Oleen die?",
    ("Marta Oleen", "painter"): "What was the trade of Marta Oleen?",
    ("Marta Oleen", "Korrin Vale"): "Where was Marta Oleen born?",
    ("Ada Brandt", "3 March 1702"): "When was Ada Brandt born?",
    ("Ada Brandt", "1771"): "When did Ada Brandt die?",
    ("Ada Brandt", "pilot"): "What was the trade of Ada Brandt?",
    ("Ada Brandt", "Sall Haven"): "Where was Ada Brandt born?",
    ("Ferrin Hall", "Marta Oleen"): "Who painted the ceiling of Ferrin Hall?",
}
DESCRIPTIONS = {
    "Orsolya Venn": "The builder of Halm Bridge.",
    "Marta Oleen": "the painter Marta Oleen of Ferrin Hall",  # names what it describes
}
MISSING = {name: f"Who gave a name to {name}?" for name in PAGES}  # no page says it
ANSWERS = {question: answer for (_, answer), question in WORDINGS.items()} | {
    "What does Halm Bridge cross?": "the mill",  # not what was to be asked for
    "Who or what is the builder of Halm Bridge?": "Orsolya Venn",
    "Where was the builder of Halm Bridge born?": "Korrin Vale",
    "When was the builder of Halm Bridge born?": "4 May 1671",
    "What was the trade of the builder of Halm Bridge?": "mason",
}
KNOWN = frozenset({"What was the trade of Marta Oleen?"})  # answered by heart


class Reader:
    """Words questions by page and answer, and gives the answer of a question if the answer stands in what it is shown.

    A wording may be one line, or one for each style. `queries` are lines by question, `descriptions` by name; a yes/no
    question is "Is ANSWER the answer to QUESTION". Questions of `unclear` are called so. `missing` are questions by the
    page's name that no page answers. `asked` counts the prompts of each part.
    """

    name = "reader"
    wordings, answers, known, descriptions, missing = WORDINGS, ANSWERS, KNOWN, DESCRIPTIONS, MISSING

    def __init__(self, **tables):
        self.queries = {}
        self.unclear = ()
        vars(self).update(tables)
        self.asked = []

    async def reply(self, messages, params):
        system, asked = messages[0]["content"], messages[-1]["content"]
        parts = {
            "You answer questions": self.read,
            "You search documents": lambda asked: self.query(asked.removeprefix("Question: ")),
            "You describe a thing": self.describe,
            "You check questions": self.judge,
            "You turn a question": self.propose,
            "You write questions": self.word,
            "You look for what a text leaves out": self.miss,
        }
        (part,) = (part for part in parts if system.startswith(part))
        self.asked.append((part, asked))
        return ChatReply(parts[part](asked), "end_of_turn", 5)

    def count(self, part):
        return sum(asked.startswith(part) for asked, _ in self.asked)

    def read(self, asked):
        shown, _, question = asked.rpartition("Question: ")
        return self.answer(shown, question)

    def answer(self, shown, question):
        if proposed := re.fullmatch(r"Is (.*) the answer to (.*)", question):
            return self.confirm(shown, *proposed.groups())
        if choice := re.fullmatch(r"(.*), (.*) or (.*)\?", question):
            return self.choose(shown, f"{choice[1]}?", choice[2], choice[3])
        answer = self.answers.get(question, "?")
        return answer if question in self.known or answer in shown else "I do not know"

    def confirm(self, shown, proposed, question):
        return "I do not know" if not shown else "yes" if self.answer(shown, question) == proposed else "no"

    def choose(self, shown, question, one, other):
        return self.answer(shown, question)

    def query(self, question):
        return self.queries.get(question, "nothing of the kind")

    def judge(self, asked):
        return "no" if re.search("Question: (.*)\n", asked)[1] in self.unclear else "yes"

    def describe(self, asked):
        return self.descriptions.get(re.search(r'Describe "(.*?)" without', asked)[1], "No?")

    def propose(self, asked):
        question, answer = re.fullmatch(r"Question: (.*)\nProposed answer: (.*)", asked).groups()
        return f"Is {answer} the answer to {question}"

    def miss(self, asked):
        name = re.search(r'Name "(.*?)"\.', asked)
        return self.missing.get(name[1] if name else "", "Why?")

    def word(self, asked):
        if both := re.match(r"Asked of (.*) and of (.*): (.*)", asked):
            when = re.search(r"is the date (earlier|later)", asked)
            if when:
                return f"Who was born {when[1]}, {both[1]} or {both[2]}?"
            return f"Were {both[1]} and {both[2]} born in the same place?" if "born" in both[3] else "Are they?"
        answer, name = re.search(r'the answer is "(.*?)"\.', asked)[1], re.search(r'Name "(.*?)"\.', asked)
        line = self.wordings.get((name[1] if name else "", answer), "Why?")
        style = "everyday" if "Use other words" in asked else "short" if "few words" in asked else "plain"
        return line if isinstance(line, str) else line.get(style, "Why?")

    async def stop(self):
        pass


class Failing(Reader):
    """Fails at the first requests, or at those of one line."""

    def __init__(self, num_failures, only="", **tables):
        super().__init__(**tables)
        self.left, self.only = num_failures, only

    async def reply(self, messages, params):
        if self.left and self.only in messages[-1]["content"]:
            self.left -= 1
            raise SamplingFailed("the model failed while sampling: out of memory")
        return await super().reply(messages, params)


async def write(index, reader=None, **settings):
    """What a writer with this endpoint keeps and drops."""
    given = {"drafts": 40, "topk": 2} | settings
    return await write_questions(ChatPolicy(reader or Reader()), index, WriterSettings(**given))


def singles(written):
    return [question.question for question in written.questions if question.kind == "single"]


def make_index(folder, pages, ids=()):
    """An index of (title, text) pairs; the first documents have these `ids`."""
    folder.mkdir(exist_ok=True)
    named = dict(enumerate(ids))
    rows = [
        {"id": named.get(number, f"d{number}"), "title": title, "text": text}
        for number, (title, text) in enumerate(pages)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build_index(folder / "corpus.jsonl", folder / "index")
