"""What `quaere learn` found out, made by hand: the records of a run and the file of its practice."""

from msgspec import structs

from quaere.api.evaluation import Evaluation
from quaere.api.learned import Example, Learned
from quaere.api.learning_plan import Machine, Plan
from quaere.evaluation.intervals import rate_interval
from quaere.evaluation.qa.abstaining import AbstentionScore
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.scores import QuestionScore, score_answering

TEXTS = [
    "Who built the Halm bridge?",
    "Orsolya Venn built the Halm bridge in 1702 for the guild of ropers.",
    "Orsolya Venn",
    "notes/bridges.md",
]


def evaluation(name, num_right, *, num=80, refused=None, several=True):
    """An evaluation of which the first questions are right; a quarter of them need two searches."""
    scores = [
        QuestionScore(
            id=f"q{number}",
            question=f"question {number}",
            facts=1,
            answer="Venn",
            exact_match=float(number * 37 % num < num_right),
            f1=0.5,
            end="answered",
            num_turns=2,
            num_malformed=0,
            num_searches=1,
            num_tokens=57,
            search_failed=False,
            searches_needed=2 if several and number % 4 == 0 else 1,
        )
        for number in range(num)
    ]
    score = score_answering(scores)
    if refused is not None:
        shares = [rate_interval([1.0] * share + [0.0] * (num - share)) for share in refused]
        score = structs.replace(score, abstention=AbstentionScore(*shares, None, 0.0, ()))
        hidden = {"answerable": False, "exact_match": 0.0}
        scores += [structs.replace(one, id=f"{one.id}-hidden", **hidden) for one in scores]
    return Evaluation(name, name, {}, score, tuple(scores))


def learned(out, *, rights=(20, 44), texts=TEXTS, num_examples=10, **how):
    """The result of a run in a folder that has its practice and, if it is there, its index."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "practice.jsonl").write_text("{}\n" * 312)
    sides = [evaluation(name, right, **how) for name, right in zip(("before", "after"), rights, strict=True)]
    if "refused" in how:
        sides[1] = evaluation("after", rights[1], **{**how, "refused": [60, 6]})
    gain = compare(*(evaluation("answerable", right) for right in reversed(rights))).exact_match
    pick = (texts[number % len(texts)] for number in range(10**9))
    made = [
        Example(next(pick), next(pick), next(pick), next(pick), kind=("single", "chain")[number % 3 == 0])
        for number in range(num_examples)
    ]
    return Learned(
        out=out,
        plan=Plan(
            sources=(next(pick),),
            model=next(pick),
            preset="large-gpu",
            teaches_form=True,
            drafts=400,
            writer_minutes=6.0,
            num_held_back=80,
            episodes=500,
            steps=30,
            machine=Machine("cuda", next(pick), 139.8, 60.2),
        ),
        before=sides[0],
        after=sides[1],
        gain=gain,
        is_better=gain.low > 0,
        kinds={next(pick): 300, "chain": 92},
        searches={"1": 300, "2": 92},
        examples=made,
        wrong=[structs.replace(one, given=next(pick)) for one in made[:3]],
        learned=made * 2,
        seconds={
            "index": 4.0,
            "questions": 371.0,
            "form": 140.0,
            "before": 61.0,
            "reinforcement": 1105.0,
            "after": 58.0,
        },
        agent=out / "agent",
        num_steps=24,
        is_trained=gain.low > 0,
    )
