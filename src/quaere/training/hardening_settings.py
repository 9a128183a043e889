"""Settings of the gate that a reworded question must pass; `recipes/hardening.py` has the gate."""

from msgspec import Struct

from quaere.errors import BadInput
from quaere.setting_types import FractionBelowOne, NonNegativeInt, PositiveFraction, PositiveInt


class HardeningConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Rewording of checked questions: which of them are reworded, and the gate that a rewording must pass.

        HardeningConfig(examiner="smollm2-135m", tries=5, min_read=0.6, max_known=0.2)

    Attributes:
        examiner: Model that answers in the gate; without one, the solver does. [Quaere]
        tries: Answers of the examiner with both passages, and as many without. [Quaere]
        min_read: Least share of right answers with both passages. [Quaere]
        max_known: Greatest share of right answers without them. [Quaere]
        topk: Passages that a search with the question returns; the page that describes must be among them, the
            passage of the answer must not. [Quaere]
        attempts: Attempts of the solver at each fact when an iteration begins: those it answers sometimes are
            reworded and join the curriculum. 0: none; all facts are reworded. [Quaere]
    """

    examiner: str = ""
    tries: PositiveInt = 5
    min_read: PositiveFraction = 0.6
    max_known: FractionBelowOne = 0.2
    topk: PositiveInt = 10
    attempts: NonNegativeInt = 0

    def check(self, given: str, *, again: bool) -> None:
        """Raise BadInput for values in conflict; `given` are the questions to reword, `generation.given`."""
        if not given:
            raise BadInput("proposer.task=harden rewords checked questions: set generation.given=FILE as well")
        if again:
            raise BadInput("proposer.task=harden takes facts anew in every iteration: leave out generation.given_again")
        if self.attempts == 1:
            raise BadInput("proposer.hardening.attempts=1 is all or none: set 0, or 2 or more")

    def plan(self, given: str) -> list[tuple[str, str]]:
        """The line of a dry run about the questions of `given`."""
        rated = f", after {self.attempts} attempts at each" if self.attempts else ""
        examined = f"{2 * self.tries} single turns of {self.examiner or 'the solver'} for each"
        return [("hardening", f"questions of {given} are reworded{rated}; {examined}")]
