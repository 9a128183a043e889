"""Every dialect there is, with a task about a document from outside and a sound episode in it."""

from collections.abc import Callable

from msgspec import Struct

import tiny
from quaere.chat.protocol import Message, Protocol, Quoted
from quaere.chat.question_wordings import QuestionWriter
from quaere.dialects.closed_book import ClosedBook
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.report.assessment import Assessor
from quaere.dialects.report.report_writer import ReportWriter
from quaere.dialects.report.rubric import RubricChooser
from quaere.dialects.tag_dialects import TagSolver
from quaere.dialects.tool_call import ToolCallProposer, ToolCallSolver
from quaere.evaluation.judges.judge import Citation, JudgeTurn, ask_verdict, quote, read_block
from quaere.records import (
    AssessTask,
    Dimension,
    DimensionRules,
    Harness,
    ProposeTask,
    Question,
    Report,
    ReportTask,
    Rubric,
    RubricTask,
    SolveTask,
    Source,
    Task,
    Weight,
)
from quaere.warmup.documents.askable_facts import Fact
from quaere.warmup.documents.prompts import (
    OneLine,
    answer_question,
    describe_name,
    propose_answer,
    show_place,
    word_missing,
    word_pair,
    word_question,
    write_query,
)

SEARCH = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
ONE = '<tool_call>{"name": "search", "arguments": {"query": "Halm bridge"}}</tool_call>'
SCORED = '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "It is here.", "score": 9}}</tool_call>'
QUOTED = "<evidence>Orsolya Venn built it.</evidence>"
ANSWER = "<answer>Orsolya Venn</answer>"
TAGGED = "<think>look</think><search>Halm bridge</search>"
REPORT = "<answer>Venn built it [1]. It stands [2, 9].\n\nConclusion: It is old [1].</answer>"
RUBRIC = "<rubric>\nfactuality\ncoverage: 0.3\n</rubric>"
SCORES = '<score dimension="factuality">9</score><score dimension="coverage">5</score>'
ASSESSMENT = f'<assessment><report id="1">{SCORES}</report><report id="2">{SCORES}</report></assessment>'

HARNESS = Harness(0, tuple(Dimension(name, "Good.") for name in ("factuality", "coverage")), DimensionRules(k=2))
RUBRIC_READ = Rubric("factuality", (Weight("coverage", 0.3),))


class Dialect(Struct, frozen=True):
    """`open(name, document)` puts the document wherever the dialect shows text from outside; `turns` answer it.

    Before them, the environment writes `num_given` turns itself.
    """

    open: Callable[[str, str], tuple[Protocol, Task]]
    turns: tuple[str, ...]
    num_given: int = 0


def _question(name, document):
    return Question(name, document[:2000], ("Mallory",))


def _solve(make):
    return lambda name, document: (make(document[:2000]), SolveTask(_question(name, document)))


def _solver(protocol):
    return _solve(lambda document: protocol)


def _propose(protocol):
    def open_task(name, document):
        return protocol, ProposeTask(name, tiny.passage("Orsolya Venn built it. " + document[:2000], document[:200]), 2)

    return open_task


def _ask(name, document):
    passage = tiny.passage(document[:2000], document[:200])
    return QuestionWriter({name: document[:200]}), ProposeTask(name, passage, 1)


def _choose(name, document):
    task = RubricTask(name, (document[:2000],), HARNESS, passages=(tiny.passage(document[:2000], document[:200]),))
    return RubricChooser(HARNESS), task


def _assess(name, document):
    source = Source(1, tiny.passage(document[:2000], document[:200]))
    shown = Report(_question(name, document), document[:2000], (), (source,))
    task = AssessTask(name, shown.question, RUBRIC_READ, HARNESS, (shown, shown))
    return Assessor(RUBRIC_READ, 2), task


def _judge(document):
    return JudgeTurn([Message("user", ("Is it so?\n", quote(document)))], lambda text: read_block(text, "verdict"))


def _write_lines(document):
    """All prompts of the question writer in one: a document brings in texts, names, answers and questions."""
    passage, short = tiny.passage(document[:2000], document[:200]), document[:200]
    fact = Fact("a#0:0", passage, short, passage.text, 0, 0, min(60, len(passage.text)), "name")
    prompts = (
        word_question(fact, "everyday", fact.name),
        describe_name(show_place(passage), short),
        word_pair(short, (short, short), "earlier"),
        propose_answer(short, short),
        word_missing(document[:2000], "name", short),
        write_query(Quoted(short)),
        answer_question(short, [document]),
    )
    return OneLine([prompts[0][0], *(message for prompt in prompts for message in prompt[1:])])


DIALECTS = {
    "tool-call solver": Dialect(_solver(ToolCallSolver()), ("<think>so</think>" + SEARCH, "unsure", SEARCH, ANSWER)),
    "guided solver": Dialect(_solver(ToolCallSolver(guided=True)), ("Orsolya Venn</answer>",), num_given=1),
    "citing solver": Dialect(_solver(ToolCallSolver(evidence=True)), (SEARCH, QUOTED + ANSWER)),
    "proposer": Dialect(_propose(ToolCallProposer()), (SEARCH, f"<question>Who?</question>{ANSWER}")),
    "citing proposer": Dialect(
        _propose(ToolCallProposer(evidence=True)), (SEARCH, f"<question>Who?</question>{QUOTED}{ANSWER}")
    ),
    "search-r1": Dialect(_solver(TagSolver("search-r1")), (TAGGED, ANSWER)),
    "evalrar": Dialect(_solver(TagSolver("evalrar")), (TAGGED, "<evaluate>No.</evaluate>" + TAGGED, ANSWER)),
    "autorefine": Dialect(_solver(TagSolver("autorefine")), (TAGGED, "<refine>Venn.</refine>" + ANSWER)),
    "evalact": Dialect(_solver(EvaluateSolver()), (ONE, SCORED, ANSWER)),
    "closed book": Dialect(_solve(lambda document: ClosedBook(span=document)), ("unsure", ANSWER)),
    "report writer": Dialect(
        lambda name, document: (ReportWriter(), ReportTask(_question(name, document), RUBRIC_READ)),
        (TAGGED, TAGGED, REPORT),
    ),
    "guided writer": Dialect(
        lambda name, document: (ReportWriter(guided=True), ReportTask(_question(name, document))),
        ("Halm\n", "bridge\n", " It stands.\n"),
    ),
    "rubric": Dialect(_choose, (RUBRIC,)),
    "assessment": Dialect(_assess, ("<search>[2] Halm bridge</search>", ASSESSMENT)),
    "open question": Dialect(_ask, ("<question>What is known of Halm?</question>",)),
    "judge": Dialect(_solve(_judge), ("<verdict>supported</verdict>",)),
    "verdict": Dialect(
        _solve(lambda document: ask_verdict(Citation("Who?", (document[:200],), document))),
        ("<verdict>supported</verdict>",),
    ),
    "one line": Dialect(_solve(_write_lines), ("Orsolya Venn\n",)),
}
