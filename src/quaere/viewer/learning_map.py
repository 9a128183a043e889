"""The map of learning: questions by steps, each cell the attempts at one question at one time; and that of two runs.

read_map(run, "notes", MapQuery()).rows[0] ->
MapRow(task="q1", question="Who built it?", cells=[Cell(0, 0, 8), None, Cell(7, 0, 8)], learned=2)

Rows are sorted by when their question was learned: the first column from which on it is mostly right. Many steps are
drawn as a few columns of several steps each. If most questions were practised only once, their rows would be empty
except for one cell; each column then stacks its own questions instead, the right ones below.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar, get_args

from msgspec import Struct

from quaere.api.run import Run
from quaere.grouping import group_by
from quaere.rewards.abstention import has_hidden_answer
from quaere.runs.rows import Outcome
from quaere.viewer.evaluation_pages import EvaluationResults
from quaere.viewer.measurements import VALIDATION, Measured, Tried, is_start, read_learning
from quaere.viewer.page_formats import ListPage, PageNumber, cut_page
from quaere.viewer.run_folder import MEASUREMENTS, require

MAX_COLUMNS = 40
ROWS_ON_A_PAGE = 2000
MAX_STACK = 100  # questions of a column that are drawn where columns are stacks
NAMED_ROWS = 100  # up to this many rows are shown with the text of their question
PANEL_ROWS = (25, 100)  # fewest and most rows of a panel, if there are more than `NAMED_ROWS` rows
PAGE_WIDTH, CELL_WIDTH, PANEL_GAP = 1140, 13, 24  # in pixels, as the style sheet has them on a wide screen
_SEEN_AGAIN = 1.5  # columns a question has on average; below, columns are stacks
SOLVER = "solver"  # phase
NEVER = 10**6  # sorts questions that were never learned after those that were

T = TypeVar("T")
State = Literal["right", "mixed", "abstained", "wrong"]
STATES: tuple[State, ...] = get_args(State)


class MapQuery(Struct, frozen=True):
    """Which questions are shown: those held back, or those practised on; "" for held-back ones, if there are any.

    MapQuery(of="held", page=2)
    """

    of: Literal["", "held", "practised"] = ""
    page: PageNumber = 1


class Column(Struct, frozen=True):
    """The steps of a column; `label` is "12" or "12–15", or "start" for a validation before the first step."""

    label: str
    first_step: int
    last_step: int


class Cell(Struct, frozen=True):
    """The attempts at a question in a column: how many are right, how many abstained, and how many there are.

    Cell(num_right=3, num_abstained=1, num=8, step=12)
    """

    num_right: int
    num_abstained: int
    num: int
    step: int  # the only step of the attempts, or the last of several
    run: str = ""  # the run that has the attempts, if it is not the map's own

    @property
    def is_mostly_right(self) -> bool:
        """True if most attempts are right."""
        return 2 * self.num_right > self.num

    @property
    def state(self) -> State:
        """How the cell is drawn: all right, mixed, mostly abstained, or mostly wrong."""
        if self.num_right == self.num:
            return "right"
        if self.is_mostly_right:
            return "mixed"
        return "abstained" if 2 * self.num_abstained >= self.num else "wrong"


class MapRow(Struct, frozen=True):
    """A question with a cell for each column, None where it was not attempted; `learned` is the column, or `NEVER`."""

    task: str
    question: str
    cells: list[Cell | None]
    learned: int

    @property
    def is_learned(self) -> bool:
        """True if the question is mostly right at the end, and was not at first."""
        first = next(cell for cell in self.cells if cell is not None)
        return self.learned < NEVER and not first.is_mostly_right

    @property
    def is_lost(self) -> bool:
        """True if the question was mostly right at first, and is not at the end."""
        first = next(cell for cell in self.cells if cell is not None)
        return self.learned == NEVER and first.is_mostly_right


class MapPage(ListPage[MapQuery, MapRow], frozen=True):
    """One page of a map. `stacks` are the questions of each column instead, if most questions have one column only.

    `num_right` are mostly right at the end; `num_learned` of these were not at first, and `num_lost` others were.
    """

    run: str
    of: Literal["held", "practised"]
    has_both: bool
    columns: list[Column]
    num_right: int
    num_learned: int
    num_lost: int
    stacks: list[list[MapRow]]
    num_left_out: int  # questions of stacks that are not drawn

    @property
    def panels(self) -> list[list[MapRow]]:
        """The rows of the page in panels that stand side by side."""
        return cut_panels(self.page.items, len(self.columns))

    @property
    def is_named(self) -> bool:
        """True if rows have the text of their question beside them."""
        return len(self.page.items) <= NAMED_ROWS


def read_map(run: Run, name: str, query: MapQuery, *, results: EvaluationResults) -> MapPage:
    """The map of a run; `NotShown` if it scored no answers."""
    held, practised = split_outcomes(run.outcomes())
    learned = read_learning(results, name)
    has_held = bool(held or learned)
    require(has_held or practised, f"run {name} has no scored answers", "its episodes are listed")
    of: Literal["held", "practised"] = (
        "held" if has_held and (query.of != "practised" or not practised) else "practised"
    )
    if learned and of == "held":
        columns, rows = _lay_out_learning(learned)
    else:
        columns, rows = lay_out(held if of == "held" else practised)
    num_cells = sum(cell is not None for row in rows for cell in row.cells)
    is_stacked = num_cells < _SEEN_AGAIN * len(rows)
    stacks = [_stack(rows, at) for at in range(len(columns))] if is_stacked else []
    return MapPage(
        query=query,
        page=cut_page([] if is_stacked else rows, query.page, ROWS_ON_A_PAGE),
        run=name,
        of=of,
        has_both=bool(has_held and practised),
        columns=columns,
        num_right=sum(row.learned < NEVER for row in rows),
        num_learned=sum(row.is_learned for row in rows),
        num_lost=sum(row.is_lost for row in rows),
        stacks=[_thin(stack) for stack in stacks],
        num_left_out=sum(max(0, len(stack) - MAX_STACK) for stack in stacks),
    )


def split_outcomes(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """The answers to questions held back, and to those practised on: in the solver's phase, if there is one."""
    held = [one for one in outcomes if one.phase == VALIDATION]
    solved = [one for one in outcomes if one.phase == SOLVER]
    return held, solved or [one for one in outcomes if one.phase != VALIDATION]


def cut_panels(rows: Sequence[T], num_columns: int) -> list[list[T]]:
    """Rows of `num_columns` cells cut into as many panels as fit side by side on a wide screen, to keep them low."""
    num_beside = max(1, PAGE_WIDTH // (num_columns * CELL_WIDTH + PANEL_GAP))
    least, most = PANEL_ROWS
    size = NAMED_ROWS if len(rows) <= NAMED_ROWS else min(max(-(-len(rows) // num_beside), least), most)
    return [[*rows[at : at + size]] for at in range(0, len(rows), size)]


def read_last(outcomes: Sequence[Outcome]) -> dict[tuple[str, bool], list[Outcome]]:
    """The last attempts at each question, by its text and whether its answer was hidden.

    Two runs of one proposer use the same ids for different questions, and different ids for the same.
    """
    last = group_by(outcomes, lambda one: (one.question, has_hidden_answer(one.task_id)))
    return {key: [one for one in group if one.step == group[-1].step] for key, group in last.items()}


def read_stack(outcomes: Sequence[Outcome]) -> list[MapRow]:
    """The questions of some attempts, the right ones first, each with one cell; at most `MAX_STACK` of them."""
    by_task = group_by(outcomes, lambda one: one.task_id)
    cells = {task: count_cell(group) for task, group in by_task.items()}
    rows = [MapRow(task, group[0].question, [cells[task]], NEVER) for task, group in by_task.items()]
    return _thin(_stack(rows, 0))


def lay_out(outcomes: Sequence[Outcome]) -> tuple[list[Column], list[MapRow]]:
    """Columns of consecutive steps, and a row for each question, sorted by when it was learned."""
    place_of = [_place(one) for one in outcomes]
    places = sorted(set(place_of))
    size = -(-len(places) // MAX_COLUMNS)
    number = {place: at // size for at, place in enumerate(places)}
    columns = [_column(places[at : at + size]) for at in range(0, len(places), size)]
    groups: dict[str, dict[int, list[Outcome]]] = {}
    for one, place in zip(outcomes, place_of, strict=True):  # in one pass: there may be a hundred thousand
        groups.setdefault(one.task_id, {}).setdefault(number[place], []).append(one)
    rows = []
    for task, by_column in groups.items():
        cells: list[Cell | None] = [None] * len(columns)
        for at, attempts in by_column.items():
            cells[at] = count_cell(attempts)
        rows.append(MapRow(task, attempts[0].question, cells, find_learned(cells)))
    return columns, sorted(rows, key=_order)


def _lay_out_learning(seen: Measured) -> tuple[list[Column], list[MapRow]]:
    """Two columns, before and after: what `quaere learn` measured, in runs of their own."""
    sides = (seen.before, seen.after)
    rows = []
    for id, asked in seen.asked.items():
        cells = [_measured_cell(side[id]) if id in side else None for side in sides]
        if any(cells):
            rows.append(MapRow(id, asked.question, cells, find_learned(cells)))
    return [Column(label, 0, 0) for label in MEASUREMENTS], sorted(rows, key=_order)


def _measured_cell(tried: Tried) -> Cell:
    return Cell(round(tried.share * tried.num), int(tried.is_abstained), tried.num, tried.step, tried.run)


def find_learned(cells: Sequence[Cell | None]) -> int:
    """The first column from which on the question is mostly right in every cell; `NEVER` if it is not in the last."""
    learned = NEVER
    for at in reversed(range(len(cells))):
        cell = cells[at]
        if cell is not None and not cell.is_mostly_right:
            break
        if cell is not None:
            learned = at
    return learned


# ------------------------------------------------------------------------------------------------------------- details


def _place(one: Outcome) -> tuple[int, int]:
    """Order in time: the validation at the start of a phase is before the attempts of its first step."""
    return one.step, not is_start(one)


def _column(places: Sequence[tuple[int, int]]) -> Column:
    (first, is_after), (last, _) = places[0], places[-1]
    label = str(first) if first == last else f"{first}–{last}"
    return Column(label if is_after else "start", first, last)


def count_cell(attempts: Sequence[Outcome]) -> Cell:
    """The attempts at one question, counted."""
    num_right, num_abstained = sum([one.is_right for one in attempts]), sum([one.is_abstained for one in attempts])
    return Cell(num_right, num_abstained, len(attempts), attempts[-1].step)


def _order(row: MapRow) -> tuple[int, float, str]:
    shares = [cell.num_right / cell.num for cell in row.cells if cell is not None]
    return row.learned, -sum(shares) / len(shares), row.task


def _stack(rows: Iterable[MapRow], column: int) -> list[MapRow]:
    """One row for each question asked in a column, with that cell only; the right ones come first."""
    found = [(cell, row) for row in rows if (cell := row.cells[column]) is not None]
    found.sort(key=lambda pair: (STATES.index(pair[0].state), -pair[0].num_right / pair[0].num))
    return [MapRow(row.task, row.question, [cell], row.learned) for cell, row in found]


def _thin(stack: list[MapRow]) -> list[MapRow]:
    """At most `MAX_STACK` of a column's questions, evenly from its top to its bottom."""
    if len(stack) <= MAX_STACK:
        return stack
    return [stack[at * len(stack) // MAX_STACK] for at in range(MAX_STACK)]
