"""What is shown of a training run."""

import io
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from quaere.cli.progress_view import (
    Estimate,
    Pace,
    _JsonReporter,
    _LiveReporter,
    _PlainReporter,
    describe_left,
    describe_progress,
    open_reporter,
)
from quaere.training.progress import Reporters, StepProgress, StepReport

METRICS = {
    "reward/mean": 0.412,
    "passes/mean": 0.22,
    "proposer/valid": 0.93,
    "policy/entropy": 0.81,
    "proposer/tokens_per_s": 812.3,
    "step/seconds": 41.2,
    "loss/policy": -0.1,
}
REPORT = StepReport(3, 53, 0, "proposer", 3, 50, METRICS)
PLAYING = StepProgress(4, 53, "proposer", "playing", "solver", 120, 1280, num_tokens=24_360, seconds=30.0)


def run(*phases, num_iterations=1):
    """Reports of a run whose phases are (name, steps, seconds a step)."""
    num_steps = num_iterations * sum(num for _, num, _ in phases)
    step = 0
    for iteration in range(num_iterations):
        for phase, num, seconds in phases:
            for phase_step in range(1, num + 1):
                step += 1
                yield StepReport(step, num_steps, iteration, phase, phase_step, num, {"step/seconds": seconds})


def lines(reporter_type, *told):
    stream = io.StringIO()
    reporter = reporter_type(stream)
    for item in told:
        reporter.note(item) if isinstance(item, str) else reporter.step(item)
    reporter.close()
    return stream.getvalue().splitlines()


# --------------------------------------------------------------------------------------------------------------- plain


def test_a_plain_line():
    assert lines(_PlainReporter, REPORT) == [
        "proposer 3/50 · iteration 1 · reward 0.41 · passes 0.22 · valid 0.93 · entropy 0.81 · 812 tok/s · 41 s/step"
        " · about 34 min left"
    ]


def test_a_plain_line_leaves_out_what_it_does_not_know():
    report = StepReport(3, 53, 1, "generation", 1, 2, {"reward/mean": math.nan, "policy/entropy": math.inf})
    assert lines(_PlainReporter, report) == ["generation 1/2 · iteration 2"]


def test_plain_alarms_and_notes_have_lines_of_their_own():
    report = StepReport(1, 2, 0, "solver", 1, 2, {}, alarms=("entropy: 0.01 nats",))
    told = lines(_PlainReporter, "checkpoint written\x1b[2J", report)
    assert told == ["checkpoint written␛[2J", "solver 1/2 · iteration 1", "alarm: entropy: 0.01 nats"]


# ---------------------------------------------------------------------------------------------------------------- JSON


def test_json_lines():
    report = StepReport(3, 53, 0, "solver", 3, 53, {"reward/mean": math.nan, "step/seconds": 2.0}, ("low",))
    step, note = (json.loads(line) for line in lines(_JsonReporter, report, "phase\nsolver ends \udcff"))
    assert step == {
        "event": "step",
        "step": 3,
        "num_steps": 53,
        "iteration": 0,
        "phase": "solver",
        "phase_step": 3,
        "num_phase_steps": 53,
        "metrics": {"reward/mean": None, "step/seconds": 2.0},
        "alarms": ["low"],
        "eta_s": 100.0,
    }
    assert note == {"event": "note", "line": "phase\nsolver ends \udcff"}


def test_json_without_a_known_pace():
    [line] = lines(_JsonReporter, StepReport(1, 2, 0, "solver", 1, 2, {"x/y": math.inf}))
    assert json.loads(line)["eta_s"] is None and json.loads(line)["metrics"] == {"x/y": None}


# ---------------------------------------------------------------------------------------------------------------- live


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def live(width=100, **options):
    clock = Clock()
    console = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=True, **options)
    return _LiveReporter(console, clock), console, clock


def shown(reporter, width=100):
    """The display as text, and once more as text with its colours."""
    console = Console(
        file=io.StringIO(), width=width, force_terminal=True, color_system="standard", legacy_windows=False
    )
    console.print(reporter.render())
    coloured = console.file.getvalue()
    return re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines(), coloured


def test_the_live_display():
    reporter, _, clock = live()
    for reward in (0.1, 0.2, 0.412):
        reporter.step(StepReport(3, 53, 0, "proposer", 3, 50, {**METRICS, "reward/mean": reward}))
    run_line, phase_line, figures = shown(reporter)[0]
    assert re.fullmatch(r"run {7}━+[╸╺]?━* {2}3/53 · about 34 min left *", run_line)
    assert re.fullmatch(r"proposer {2}━+[╸╺]?━* {2}3/50 · iteration 1 *", phase_line)
    assert figures.rstrip() == ("reward 0.41 · passes 0.22 · valid 0.93 · entropy 0.81 · 812 tok/s · 41 s/step  ▁▃█")
    clock.now += 600  # the time left runs on between steps
    assert "about 24 min left" in shown(reporter)[0][0]
    clock.now += 6000
    assert "left" not in shown(reporter)[0][0]  # it took longer than thought: nobody knows
    reporter.close()


def test_the_bar_grows_with_the_run():
    reporter, _, _ = live()
    colours = []
    for report in run(("solver", 4, 1.0)):
        reporter.step(report)
        colours.append(shown(reporter)[1].splitlines()[0])
    reporter.close()
    assert len(set(colours)) == 4
    assert "4/4" in colours[-1] and "left" not in colours[-1]


def test_a_run_of_one_step_ends_with_a_whole_bar():
    reporter, _, _ = live()
    reporter.step(*run(("solver", 1, 1.0)))
    bar = shown(reporter)[0][0]
    reporter.close()
    assert "1/1" in bar and "━" in bar and not set("╸╺") & set(bar)


def test_rewards_of_different_phases_do_not_share_a_line():
    reporter, _, _ = live()
    for phase, reward in (("proposer", 0.1), ("proposer", 0.2), ("solver", 0.9), ("solver", 0.8), ("solver", 0.9)):
        reporter.step(StepReport(1, 9, 0, phase, 1, 3, {"reward/mean": reward}))
    reporter.close()
    assert shown(reporter)[0][2].rstrip() == "reward 0.90  █▁█"


def test_alarms_stay_in_red_and_the_oldest_goes():
    reporter, _, _ = live()
    for number in range(1, 6):
        alarms = (f"entropy [bold]{number}",) if number < 5 else ()
        reporter.step(StepReport(number, 9, 0, "solver", number, 9, {}, alarms))
    reporter.close()
    text, coloured = shown(reporter)
    assert text[3:] == [f"step {number}: entropy [bold]{number}" for number in (2, 3, 4)]
    assert "\x1b[31mstep 4: entropy" in coloured


def test_notes_scroll_above_and_the_last_state_stays():
    reporter, console, _ = live(color_system=None)
    reporter.note("phase [proposer] begins\x07")
    reporter.step(REPORT)
    reporter.note("checkpoint written")
    reporter.close()
    reporter.close()
    written = console.file.getvalue()
    assert "phase [proposer] begins␇\n" in written
    assert written.index("begins") < written.index("checkpoint written") < written.rindex("3/53")
    assert written.index("the first step is under way · 0.0 s") < written.index("3/53")
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1  # the cursor is back


@pytest.mark.parametrize("width", [20, 40, 200])
def test_no_width_breaks_the_display(width):
    reporter, _, _ = live(width)
    reporter.step(REPORT)
    reporter.close()
    assert all(len(line) <= width for line in shown(reporter, width)[0])


# ------------------------------------------------------------------------------------------------- opening and several


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_whoever_suits_the_place(monkeypatch, capsys):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_reporter(stream=io.StringIO()), _PlainReporter)
    assert isinstance(open_reporter(stream=Terminal()), _LiveReporter)
    assert isinstance(open_reporter(json=True, stream=Terminal()), _JsonReporter)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_reporter(stream=Terminal()), _PlainReporter)
    open_reporter().note("to stderr")
    open_reporter(json=True).note("to stdout")
    printed = capsys.readouterr()
    assert (printed.err, printed.out) == ("to stderr\n", '{"event": "note", "line": "to stdout"}\n')


def test_several_are_told_and_all_are_closed():
    class Failing(_PlainReporter):
        def close(self):
            self.note("closed")
            raise OSError("no space left")

    streams = io.StringIO(), io.StringIO()
    reporters = Reporters([Failing(stream) for stream in streams])
    reporters.note("hello")
    reporters.step(StepReport(1, 1, 0, "solver", 1, 1, {}))
    with pytest.raises(OSError, match="no space"):
        reporters.close()
    assert [stream.getvalue() for stream in streams] == ["hello\nsolver 1/1 · iteration 1\nclosed\n"] * 2


# ----------------------------------------------------------------------------------------------------------- time left


def estimates(reports):
    pace = Pace()
    return [pace.add(report) for report in reports]


def test_a_phase_nobody_has_seen_is_guessed_from_what_is_known():
    found = estimates(run(("proposer", 2, 10.0), ("generation", 1, 4.0), ("solver", 2, 6.0)))
    assert found == [
        Estimate(40.0, rough=True),
        Estimate(30.0, rough=True),
        Estimate(14.0, rough=True),  # two steps of solver, at the mean of 10 and 4
        Estimate(6.0, rough=False),
        Estimate(0.0, rough=False),
    ]


def test_the_middle_of_the_steps_counts():
    metrics = ({"step/seconds": seconds} for seconds in (90.0, 1.0, 2.0, math.nan))
    reports = [StepReport(number, 10, 0, "solver", number, 10, found) for number, found in enumerate(metrics, 1)]
    assert estimates(reports)[-1] == Estimate(6 * 2.0, rough=False)


def test_no_estimate_before_anything_is_known():
    assert estimates([StepReport(1, 9, 0, "solver", 1, 9, {})]) == [None]
    assert describe_left(None) == [] == describe_left(Estimate(0.0, rough=False))


def test_going_back_to_a_checkpoint_is_not_taken_for_the_order_of_phases():
    reports = list(run(("proposer", 2, 10.0), ("generation", 1, 4.0), ("solver", 2, 6.0)))
    found = estimates([*reports[:3], *reports[1:3]])
    assert found[-1] == Estimate(2 * 7.0, rough=True)  # what follows generation is still unknown


def test_a_phase_that_does_not_say_what_it_takes_is_guessed():
    told = [StepReport(1, 4, 0, "proposer", 1, 1, {"step/seconds": 5.0}), StepReport(2, 4, 0, "solver", 1, 3, {})]
    assert estimates(told)[-1] == Estimate(10.0, rough=True)


PHASES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=3)


@given(PHASES, st.integers(2, 4))
def test_once_every_phase_is_seen_the_estimate_is_exact(sizes, num_iterations):
    phases = [(name, num, float(seconds)) for name, (num, seconds) in zip("abc", sizes, strict=False)]
    reports = list(run(*phases, num_iterations=num_iterations))
    seconds = [report.metrics["step/seconds"] for report in reports]
    for number, (report, found) in enumerate(zip(reports, estimates(reports), strict=True), 1):
        if report.iteration >= 1:
            assert found == Estimate(pytest.approx(sum(seconds[number:])), rough=False)


# ------------------------------------------------------------------------------------------------- within a step


def test_progress_by_hand():
    assert PLAYING.tokens_per_s == 812.0
    assert PLAYING.seconds_left == 30 / 120 * 1160
    assert describe_progress(PLAYING) == "playing solver: 120/1280 episodes · 812 tok/s · 5 min left"
    whole = StepProgress(4, 53, "proposer", "playing", "solver", 8, 8, num_tokens=0, seconds=0.0)
    assert describe_progress(whole) == "playing solver: 8/8 episodes"


def test_the_part_that_runs_is_named():
    learning = StepProgress(4, 53, "proposer", "learning", "proposer", 3, 12, seconds=6.0)
    assert describe_progress(learning) == "learning proposer: 3/12 micro-batches · 18 s left"
    saving = StepProgress(4, 53, "proposer", "saving", "proposer")
    assert describe_progress(saving) == "saving the checkpoint"
    stream, clock = io.StringIO(), Clock()
    reporter = _PlainReporter(stream, clock)
    clock.now = 30.0
    reporter.progress(saving)
    assert stream.getvalue() == "step 4/53 · saving the checkpoint\n"


def test_a_log_hears_of_a_long_step_every_half_minute():
    stream, clock = io.StringIO(), Clock()
    reporter = _PlainReporter(stream, clock)
    for clock.now in (1.0, 29.0, 30.0, 31.0, 59.0, 61.0):
        reporter.progress(PLAYING)
    clock.now = 62.0
    reporter.note("a phase begins")
    for clock.now in (90.0, 92.0):
        reporter.progress(PLAYING)
    line = "step 4/53 · playing solver: 120/1280 episodes · 812 tok/s · 5 min left"
    assert stream.getvalue().splitlines() == [line, line, "a phase begins", line]


def test_json_hears_of_it_as_seldom():
    stream, clock = io.StringIO(), Clock()
    reporter = _JsonReporter(stream, clock)
    for clock.now in (1.0, 30.0, 31.0):
        reporter.progress(PLAYING)
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["part"], line["num_done"], line["num_all"]) == ("progress", "playing", 120, 1280)
    assert line["eta_s"] == 290.0


def test_a_terminal_shows_the_step_that_is_under_way():
    clock = Clock()
    reporter = _LiveReporter(Console(file=io.StringIO(), force_terminal=True, width=120), clock)
    console = Console(file=io.StringIO(), width=120)

    def drawn():
        with console.capture() as captured:
            console.print(reporter.render())
        return captured.get()

    assert "the first step is under way · 0.0 s" in drawn()
    reporter.progress(PLAYING)
    clock.now = 9.0
    assert "the first step is under way · playing solver: 120/1280 episodes · 812 tok/s · 5 min left · 9.0 s" in drawn()
    reporter.step(REPORT)
    assert "under way" not in drawn()
    reporter.progress(PLAYING)
    assert "the next step is under way · playing solver: 120/1280" in drawn()
    reporter.close()


def test_several_are_told_of_progress():
    heard = []

    class Ear:
        def progress(self, progress):
            heard.append(progress)

    Reporters([Ear(), Ear()]).progress(PLAYING)
    assert heard == [PLAYING, PLAYING]
