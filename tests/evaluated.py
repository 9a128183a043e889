"""Episodes of searches and evaluations, made by hand: every turn's tokens lie where the turn says they do."""

from msgspec import structs

from quaere.records import (
    Answer,
    Episode,
    Evaluate,
    Failure,
    Hit,
    Malformed,
    Passage,
    Question,
    Search,
    SearchResult,
    Segment,
    SolveTask,
    Turn,
)

QUESTION = Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",))
NEVER_MET = Failure("search", "timeout", "no answer within 1 s")
NO_ROOM = Failure("limit", "sequence_tokens", "the reply does not fit into the sequence")
SEARCHES = "<think>I look.</think><tool_call>...</tool_call>"
EVALUATES = "<think>Well.</think><tool_call>...</tool_call>"


def passage(text, doc_id="d0", start=0, title=""):
    return Passage(f"{doc_id}#{start}", doc_id, title, text, start, start + len(text))


def search(*passages, failure=None, note=""):
    """A search that returned these passages; one with a failure that is not a limit returned nothing."""
    hits = tuple(Hit(item, 1.0) for item in passages)
    results = () if failure == NEVER_MET else (SearchResult("bridge", hits),)
    return Turn(0, SEARCHES, Search(("bridge",), note), "stop_string", results=results, failure=failure)


def evaluate(score):
    return Turn(0, EVALUATES, Evaluate("as it seems", score), "stop_string")


def answer(text, note=""):
    return Turn(0, f"<think>So.</think><answer>{text}</answer>", Answer(text, note=note), "stop_string")


def malformed(note=""):
    return Turn(0, "Hm.", Malformed("no action", note), "stop_string", failure=Failure("protocol", "malformed", "no"))


def episode(*turns, question=QUESTION, sizes=()):
    """`sizes` of a turn: how many tokens of ours open it, of thought, of action, of reply; (0, 3, 4, 5) if not said."""
    segments, placed, at = [_segment("prompt", 6)], [], 6
    for index, turn in enumerate(turns):
        num_prefix, num_thought, num_action, num_reply = sizes[index] if sizes else (0, 3, 4, 5)
        segments += [
            _segment("environment", num_prefix),
            _segment("model", num_thought + num_action),
            _segment("environment", num_reply),
        ]
        start = at + num_prefix
        placed.append(
            structs.replace(
                turn, index=index, start=start, acts_at=start + num_thought, num_tokens=num_thought + num_action
            )
        )
        at = start + num_thought + num_action + num_reply
    outcome = turns[-1].action if turns and isinstance(turns[-1].action, Answer) else None
    end = "answered" if outcome else "turn_limit"
    return Episode("e1", SolveTask(question), "p", "m", 0, tuple(segments), tuple(placed), outcome, end)


def _segment(origin, size):
    is_model = origin == "model"
    return Segment(origin, tuple(range(size)), (-0.5,) * size * is_model, (is_model,) * size)
