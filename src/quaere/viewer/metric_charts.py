"""Metrics of a run by chart, with a sentence on what each chart says and which way is good.

group_metrics(["passes/1", "passes/0", "reward/mean"]) ->
{"Reward": [("Mean reward", ["reward/mean"])], "Difficulty of the questions": [...]}

The charts have the order in which the papers discuss their metrics. The lines of one chart share an axis, so a chart
holds metrics of one unit only. A metric that no pattern names gets a chart of its own at the end: nothing that was
logged is hidden.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from quaere.api.run import Run
from quaere.runs.rows import Metric
from quaere.viewer.plot import Series, is_drawn

MAX_METRICS = 300  # metrics of one page: a run of somebody else's may have any number
MAX_LINES = 10  # lines of one chart, as many as there are colours
_BY_NEED = " by searches needed"
PLACES = ("run/iteration", "run/phase")  # where a step is in the run: drawn as bands, not as curves
MAIN = {
    "validation/exact_match": "held back, right",
    "answer/exact_match": "exact match",
    "reward/mean": "mean reward",
    "passes/mean": "pass rate",
    "report/finished": "reports finished",
    "consistency/mean": "consistency",
    "policy/entropy": "entropy",
}
"""Metrics that summarise a run in a list, in words, the most informative first."""


class ChartData(Struct, frozen=True):
    """A chart with its values.

    ChartData("Mean reward", [Series("reward/mean", [1, 2], [0.2, 0.4])])
    """

    title: str
    series: list[Series]

    @property
    def note(self) -> str:
        """What the chart says and which way is good; "" for metrics that no pattern knows."""
        return _NOTES.get(self.title, "")

    @property
    def has_course(self) -> bool:
        """True if a line has two values: fewer are no curve. A chart by searches needed must also have two lines."""
        is_split = len(self.series) > 1 or not self.title.endswith(_BY_NEED)
        return is_split and any(sum(map(is_drawn, one.values)) > 1 for one in self.series)


class ChartSection(Struct, frozen=True):
    """Charts under one heading."""

    title: str
    charts: list[ChartData]


# The gates of a rewording, in order (`recipes/hardening.py`), and what is left to learn from after them.
_GATES = "proposal answer pages wording description leads far read unknown yield"
# Heading, chart title and patterns, which order a chart's lines. The first row with a pattern that fits has the metric.
_CHARTS = (
    ("Reward", "Mean reward", "reward/mean reward/share"),
    ("Reward", "Mean reward by searches needed", "reward/mean_n*"),
    ("Reward", "Reward components", "reward/*"),
    ("Answers", "Exact match", "answer/exact_match validation/exact_match validation/rating"),
    ("Answers", "Exact match by searches needed", "answer/exact_match_n* validation/exact_match_n*"),
    ("Answers", "Rating of the weights kept", "validation_start/rating validation_start/rating_error validation/kept"),
    ("Answers", "Other scores of answers", "answer/* validation/f1 validation/unanswered"),
    ("Difficulty of the questions", "Mean pass rate", "passes/mean"),
    ("Difficulty of the questions", "Questions by number of right attempts", "passes/*"),
    ("Difficulty of the questions", "Gate", " ".join(f"gate/{name}" for name in _GATES.split())),
    ("Difficulty of the questions", "Facts answered sometimes", "facts/sometimes"),
    ("Format", "Format reward and its parts", "format/*"),
    ("Format", "Readable turns and valid questions", "*/call_validity */valid */readable report/finished"),
    ("Format", "Answered, unanswered, cut off", "*/answered */unanswered */truncated"),
    ("Searches", "Searches per episode", "*/searches"),
    ("Searches", "Searches by need", "*/searches_n[0-9]* */searches_h[0-9]*"),
    ("Searches", "Searches needed", "*/searches_needed */search_gap"),
    ("Searches", "Searches kept since the phase began", "*/searches_kept"),
    ("Searches", "Information gain, nats per token", "gain/mean"),
    ("Searches", "Searches with a gain", "gain/positive"),
    ("Searches", "Turns per episode", "*/turns"),
    ("Searches", "Failed searches", "*/search_failures */spoiled"),
    ("Evidence", "Probability of the answer with and without evidence", "evidence/chance_* evidence/value"),
    ("Evidence", "Evidence of questions and answers", "evidence/present evidence/verbatim evidence/refused"),
    ("Evidence", "Refused by each guard", "guard/*"),
    ("Evidence", "Tokens of evidence", "evidence/tokens"),
    ("Self-evaluation", "Scores of searches", "evaluate/mean_score evaluate/score"),
    ("Self-evaluation", "Other measures of scores", "evaluate/*"),
    ("Reports", "Consistency and diversity", "consistency/* diversity/*"),
    ("Reports", "Citations", "check/*"),
    ("Reports", "Scores", "scores/mean scores/spread scores/ceiling score/*"),
    ("Reports", "Gauges of reward hacking", "gauge/*"),
    ("Reports", "Rubrics", "rubrics/* rubric/*"),
    ("Policy", "Entropy, nats per token", "policy/entropy"),
    ("Policy", "Loss", "loss/*"),
    ("Policy", "Gradient norm", "gradient/norm"),
    ("Policy", "Learning rate", "learner/rate"),
    ("Policy", "Preference pairs", "dpo/*"),
    ("Advantages", "Spread and size of advantages", "advantage/std advantage/max_abs"),
    ("Advantages", "Shares of samples", "advantage/* groups/informative_share"),
    ("Advantages", "Informative groups", "groups/informative groups/per_minute"),
    ("Sampler and learner", "Difference of log-probs, nats", "mismatch/*"),
    ("Sampler and learner", "Share of the update that is sampled", "sampler/*"),
    ("Curriculum", "Candidates by outcome", "curriculum/*"),
    ("Curriculum", "Questions in use", "questions/*"),
    ("Curriculum", "Selector", "selector/*"),
    ("Lengths", "Model tokens per episode", "*/model_tokens"),
    ("Lengths", "Tokens per episode", "*/tokens"),
    ("Lengths", "Duplicates", "*/duplicates"),
    ("Cost", "Seconds per step", "step/seconds"),
    ("Cost", "Tokens per second", "*/tokens_per_s"),
    ("Cost", "Seconds of search", "*/search_s"),
    ("Cost", "Memory, GiB", "memory/*"),
    ("Cost", "Episodes", "*/episodes cost/*"),
)
_NOTES = {
    "Mean reward": "What the policy is trained to raise. Up is good; its scale depends on the role.",
    "Mean reward by searches needed": "Rises first for questions that need one search.",
    "Reward components": "What the reward is made of. One that rises alone may be gamed.",
    "Exact match": "Share of answers that equal an accepted one. Up is good.",
    "Exact match by searches needed": "Which kinds of question are answered. Up is good.",
    "Rating of the weights kept": "Exact match, or the reward of abstaining. Up by more than the error is a rise.",
    "Other scores of answers": "F1 up is good; unanswered and abstained should stay rare.",
    "Mean pass rate": "Share of attempts that are right. Near 0 or 1 there is nothing to learn from.",
    "Questions by number of right attempts": "Questions that are solved sometimes teach most.",
    "Gate": "Share that passes each gate and those before; yield: solved sometimes. Up is good.",
    "Facts answered sometimes": "Checked facts that are worth rewording for this solver.",
    "Format reward and its parts": "Whether turns have the form asked for. Should reach 1 early.",
    "Readable turns and valid questions": "Shares of turns and proposals that can be read. Up is good.",
    "Answered, unanswered, cut off": "Answered up is good; cut off means that limits are too tight.",
    "Searches per episode": "A fall to 0 means that it answers from memory.",
    "Searches by need": "Questions that need more searches should get more.",
    "Searches needed": "How hard the questions are, by searches.",
    "Searches kept since the phase began": "1 means as many searches as at the start. A fall is a warning.",
    "Information gain, nats per token": "How much likelier results make the known answer. Up is good.",
    "Searches with a gain": "Share of searches whose result makes the known answer likelier. Up is good.",
    "Turns per episode": "Length of an episode in turns.",
    "Failed searches": "Should be 0: such episodes teach nothing.",
    "Probability of the answer with and without evidence": "Good evidence makes the answer likelier than none does.",
    "Evidence of questions and answers": "Quotations given, and found word for word. Up is good.",
    "Refused by each guard": "Questions whose evidence breaks a rule. Several rules may refuse one.",
    "Tokens of evidence": "Length of quotations. Growth may be copying of whole passages.",
    "Scores of searches": "How useful the policy finds its own searches.",
    "Other measures of scores": "Whether those scores tell good searches from bad.",
    "Consistency and diversity": "Both up is good.",
    "Citations": "Whether reports cite what they were shown. Up is good.",
    "Scores": "The evaluator's scores. At the ceiling they no longer tell reports apart.",
    "Gauges of reward hacking": "Should stay low: reports written for the evaluator.",
    "Rubrics": "How much is asked of a report.",
    "Entropy, nats per token": "How varied the policy is. A fall to 0 ends learning.",
    "Loss": "No measure of quality: it moves around 0.",
    "Gradient norm": "Size of an update. Spikes are a warning.",
    "Learning rate": "As scheduled.",
    "Preference pairs": "How well preferred answers are told from others. Accuracy up is good.",
    "Spread and size of advantages": "How much attempts differ. At 0 nothing is learned.",
    "Shares of samples": "Samples that teach. Groups of equal rewards do not.",
    "Informative groups": "Questions whose attempts differ in reward. Up is good.",
    "Difference of log-probs, nats": "Sampler against learner. Should stay near 0.",
    "Share of the update that is sampled": "How much of an update reaches the sampling copy. Should be near 1.",
    "Candidates by outcome": "What became of the questions that were written.",
    "Questions in use": "How many questions were drawn, and how often.",
    "Selector": "Where questions are asked about.",
    "Model tokens per episode": "What the policy writes. A steady rise may be rambling.",
    "Tokens per episode": "With prompts and passages.",
    "Duplicates": "Questions asked before. Down is good.",
    "Seconds per step": "Time of a step.",
    "Tokens per second": "Speed of sampling. Up is good.",
    "Seconds of search": "Time that searches take.",
    "Memory, GiB": "Should be flat.",
    "Episodes": "How many were played.",
}
"""What a chart says, and which way is good."""


def group_metrics(names: Sequence[str]) -> dict[str, list[tuple[str, list[str]]]]:
    """The charts for these metrics by heading, each a title with its metrics; no chart or heading is empty."""
    left = sorted((name for name in names if name not in PLACES), key=_natural)
    groups: dict[str, list[tuple[str, list[str]]]] = {}
    for heading, title, patterns in _CHARTS:
        fitting = (name for pattern in patterns.split() for name in left if fnmatchcase(name, pattern))
        if held := list(dict.fromkeys(fitting)):
            taken = set(held)
            left = [name for name in left if name not in taken]
            charts = [(title, held[at : at + MAX_LINES]) for at in range(0, len(held), MAX_LINES)]
            groups.setdefault(heading, []).extend(charts)
    if left:
        groups["Other"] = [(name, [name]) for name in left]
    return groups


def draw_sections(
    names: Sequence[str], draw: Callable[[str, list[str]], list[ChartData]]
) -> tuple[list[ChartSection], int]:
    """Group the metrics into charts and call `draw` on each; at most `MAX_METRICS` are drawn.

    Returns the drawn charts by section, and the number of metrics left out.
    """
    sections, room, num_left_out = [], MAX_METRICS, 0
    for heading, members in group_metrics(names).items():
        charts = []
        for title, held in members:
            shown = held[:room]
            room -= len(shown)
            num_left_out += len(held) - len(shown)
            charts += draw(title, shown) if shown else []
        sections += [ChartSection(heading, charts)] if charts else []
    return sections, num_left_out


def read_lines(run: Run, name: str = "") -> dict[str, Series]:
    """Every metric of a run as a line, by metric; the line's label is `name`, or the metric if `name` is ""."""
    return {metric: make_line(name or metric, values) for metric, values in run.all_metrics().items()}


def name_metric(name: str) -> str:
    """A metric in words if it is one of the main ones, else as it was logged."""
    return (MAIN | {"answer/f1": "F1"}).get(name, name)


def make_line(name: str, values: Sequence[Metric]) -> Series:
    """The logged values of a metric as a `Series` with this name."""
    return Series(name, [one.step for one in values], [one.value for one in values])


def find_steps(lines: Iterable[Series]) -> tuple[int, int]:
    """The first and the last step of some lines; 0 and 0 for none."""
    ends = [step for line in lines for step in (line.steps[0], line.steps[-1])]
    return min(ends, default=0), max(ends, default=0)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts `passes/2` before `passes/10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,9})", name)]
