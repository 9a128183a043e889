"""A newsroom small enough to train a whole SCORE in: eight bridges, and on each a record and a rumour.

A transformer of a few thousand weights is taught the *format* of all three acts by imitation. As a writer it searches
for its bridge; what it writes is up to the rubric it is told:

    coverage    cites the record or the rumour by chance, and always concludes the same
    insight     cites the record or the rumour by chance, and concludes in any of eight words
    brevity     cites nothing, and always concludes the same

As an evaluator it chooses by chance among the dimensions it is offered, and scores reports high that cite the record,
low that cite the rumour or nothing. So it is known what SCORE has to find where it is offered coverage and insight:
cite the record, judge by coverage. And where it is offered insight and brevity, it is known what an evaluator will do
that alone learns: buy agreement with rubrics under which nothing is cited.
"""

import json
from functools import lru_cache

import village
from quaere.chat.statements import extract_conclusion, split_statements
from quaere.dialects.report.assessment import Assessor
from quaere.dialects.report.evaluator_prompts import assessment_system, rubric_system
from quaere.dialects.report.report_writer import BRIEF_SYSTEM, ReportWriter
from quaere.dialects.report.rubric import RubricChooser
from quaere.records import (
    AssessTask,
    Dimension,
    DimensionRules,
    Harness,
    ProcessRules,
    Question,
    Report,
    ReportTask,
    Rubric,
    RubricTask,
    Source,
    Weight,
)
from quaere.search.index import IndexSettings
from quaere.search.index_build import build_index

BRIDGES = "Halm Oss Korrin Tallow Brill Dunmer Esker Fane".split()
KINDS = ("record", "rumour")
WORDS = "old new long short high low broad grey".split()
SAME, ANY, PLAIN = "coverage", "insight", "brevity"
NAMES = (SAME, ANY, PLAIN)
PROCESS = ProcessRules(False, False, False, False, min_tool_calls=1)
NUM_REPORTS = 4

REPORT = "<answer>It stands [{}].\n\nConclusion: {}</answer>"
UNCITED = f"<answer>It stands.\n\nConclusion: {WORDS[0]}</answer>"
RUBRIC = "<rubric>\nfactuality\n{}: 0.3\n</rubric>"
# All other dimensions are scored alike, whichever is asked for: what the rubric does not have is passed over.
MIDDLING = "".join(f'<score dimension="{name}">5</score>' for name in NAMES)
ENTRY = '<report id="{}"><score dimension="factuality">', f"</score>{MIDDLING}</report>"
# Words its tokenizer was not made for are spelled letter by letter: a note on the last search would take up the room.
LIMITS = {"max_turns": 3, "turn_tokens": 48, "sequence_tokens": 320, "tool_response_tokens": 48, "topk": 2}
LIMITS["answer_turn"] = False


def pool(*names):
    return tuple(Dimension(name, f"Good {name}.") for name in ("factuality", *names))


def harness(*names):
    return Harness(0, pool(*names), DimensionRules(k=2), PROCESS)


OFFERS = (harness(SAME, ANY), harness(ANY, PLAIN))


def rubric(name):
    return Rubric("factuality", (Weight(name, 0.3),))


def write_index(folder):
    """The shorter of two passages comes first: the record."""
    texts = dict(zip(KINDS, ("{}", "{} of old and long"), strict=True))
    rows = [
        {"id": f"{bridge}-{kind}", "title": kind, "text": text.format(bridge)}
        for bridge in BRIDGES
        for kind, text in texts.items()
    ]
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    build_index(corpus, folder / "index", IndexSettings())
    return folder / "index"


def write_questions(path):
    """One a bridge; nobody knows an answer."""
    rows = [{"id": f"q{number}", "question": bridge} for number, bridge in enumerate(BRIDGES)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@lru_cache
def tokenizer():
    """Whole pieces of every act are single tokens."""
    lines = [*BRIDGES, *KINDS, *WORDS, " of old and long", "<search>", "</search>", "Question:\n", "[1]\n", "\n\n[2]\n"]
    lines += ["<answer>It stands [", "].\n\nConclusion: ", "</answer>", "It stands [", "factuality", "none\n"]
    lines += ["<answer>It stands.\n\nConclusion: ", "It stands.\n\nConclusion: ", *NAMES, " 0.3."]
    lines += ["<rubric>\nfactuality\n", ": 0.3\n</rubric>", "<assessment>", "</assessment>", ENTRY[1]]
    lines += ["\n\nJudged by ", "Dimensions:\n", "Questions:\n- "]
    for number in range(1, NUM_REPORTS + 1):
        lines += [ENTRY[0].format(number), f"\nReport {number}:\n", f"\nSources of report {number}:\n"]
    lines += ["<observation>\n", "\n</observation>", "system\n", "user\n", "assistant\n", BRIEF_SYSTEM]
    lines += [", ".join(item.name for item in offer.pool) + "\n" for offer in OFFERS]
    lines.append(rubric_system("brief", OFFERS[0].dimensions))
    how = {"scale": 10.0, "separate_validity": False, "process": PROCESS}
    lines += [assessment_system("brief", rubric(name), NUM_REPORTS, **how) for name in NAMES]
    return village.make_tokenizer(lines, 4000)


def rubric_lessons(draw, number):
    """Both dimensions of an offer, so that neither is preferred."""
    offer = draw.choice(OFFERS)
    task = RubricTask(f"rubric-{number}", (BRIDGES[number],), offer)
    return [(RubricChooser(offer, style="brief"), task, [RUBRIC.format(item.name)]) for item in offer.pool[1:]]


def write_report(draw, name, cited):
    if name == PLAIN:
        return UNCITED
    return REPORT.format(cited, WORDS[0] if name == SAME else draw.choice(WORDS))


def writer_lesson(draw, number, name, cited):
    """Searches for the bridge, and writes as the rubric has it."""
    task = ReportTask(Question(f"q{number}", BRIDGES[number]), rubric(name))
    return ReportWriter(style="brief"), task, [f"<search>{BRIDGES[number]}</search>", write_report(draw, name, cited)]


def make_report(draw, number, name, passages):
    text = write_report(draw, name, draw.choice([1, 2])).removeprefix("<answer>").removesuffix("</answer>")
    statements = split_statements(text)
    cited = {cited for statement in statements for cited in statement.citations}
    sources = tuple(Source(one, passages[f"{BRIDGES[number]}-{KINDS[one - 1]}"]) for one in cited)
    return Report(Question(f"q{number}", BRIDGES[number]), text, statements, sources, extract_conclusion(text))


def cites_record(report):
    return any(source.passage.title == KINDS[0] for source in report.sources)


def assess_lesson(draw, number, passages):
    """Searches once, then scores those high that cite the record."""
    name = draw.choice(NAMES)
    reports = tuple(make_report(draw, number, name, passages) for _ in range(NUM_REPORTS))
    task = AssessTask(f"assess-{number}", reports[0].question, rubric(name), OFFERS[0], reports)
    return Assessor(task.rubric, NUM_REPORTS, style="brief", process=PROCESS), task, write_assessment(task)


def write_assessment(task):
    entries = [
        f"{ENTRY[0].format(place)}{9 if cites_record(report) else 1}{ENTRY[1]}"
        for place, report in enumerate(task.reports, start=1)
    ]
    return [f"<search>{task.question.text}</search>", f"<assessment>{''.join(entries)}</assessment>"]


def draw_lessons(draw, passages):
    """Lessons in every act on every bridge.

    Of what is up to chance each round has every case equally often, and what a rubric changes stands side by side in
    it: coins would leave a preference, and the rubric unheeded by some models, which of them depending on rounding.
    """
    lessons = []
    for number in draw.sample(range(len(BRIDGES)), len(BRIDGES) // 2):
        lessons += [writer_lesson(draw, number, name, cited) for name in NAMES for cited in (1, 2)]
        lessons += rubric_lessons(draw, number)
        lessons += [assess_lesson(draw, number, passages) for _ in range(3)]
    return lessons


def build(folder, num_rounds=40, num_times=3):
    """The index, a model that knows the format of every act, and questions: returns their paths."""
    index = write_index(folder)
    model = village.save_taught(folder / "model", tokenizer(), index, draw_lessons, LIMITS, num_rounds, num_times)
    return index, model, write_questions(folder / "questions.jsonl")


def dictate(job):
    """Rubrics that keep the rules, and without one a report that cites the record beside one that cites nothing.

    What to write without a rubric the model was never taught: all of its reports may be alike. The rest is its own.
    """
    if isinstance(job.task, RubricTask):
        offered = job.task.harness.pool[1:]
        return [RUBRIC.format(offered[BRIDGES.index(job.task.questions[0]) % len(offered)].name)]
    texts = [REPORT.format(1, WORDS[0]), UNCITED]
    if not isinstance(job.task, ReportTask) or job.task.rubric or job.task.number >= len(texts):
        return None
    return [f"<search>{job.task.question.text}</search>", texts[job.task.number]]


def dictate_acts(job):
    """Every other report cites the record, and all conclude as their rubric has it; assessments see who cites it.

    Rubrics are the model's own.
    """
    if isinstance(job.task, AssessTask):
        return write_assessment(job.task)
    if not isinstance(job.task, ReportTask):
        return None
    number, is_same = job.task.number, SAME in job.task.rubric.dimensions
    report = REPORT.format(1 + number % 2, WORDS[0 if is_same else number])
    return [f"<search>{job.task.question.text}</search>", report]
