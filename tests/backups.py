"""Two notes, questions about them, and the turns of a model that knows how to look them up."""

import json

import tiny
from quaere.chat.renderer import Renderer
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

SENTENCE = "In May 2019 we moved the backups to Oslo."
DOCUMENT = f"# Backups\n\nThey run at night. {SENTENCE}\n"


def call(query):
    return '<tool_call>{"name": "search", "arguments": {"query_list": ["' + query + '"]}}</tool_call>'


TURNS = [call("backups"), f"<evidence>{SENTENCE}</evidence><answer>May 2019</answer>"]


class EverySession(dict):
    """A script that every session follows."""

    def __init__(self, turns):
        super().__init__()
        self.turns = turns

    def __missing__(self, session):
        return self.turns


def write_notes(folder):
    """`notes/` and `questions.jsonl` in the folder."""
    (folder / "notes").mkdir()
    (folder / "notes" / "ops.md").write_text(DOCUMENT)
    (folder / "notes" / "oss.md").write_text("# The Oss\n\nThe Oss rises in the Korrin hills.\n")
    rows = [
        {"id": "q1", "question": "When did we move the backups?", "answers": ["May 2019", "2019"], "facts": 1},
        {"id": "q2", "question": "Where does the Oss rise?", "answers": ["Korrin"], "facts": 1},
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def scripted(scripts, stopped=None):
    """What may stand for `open_policy`: a policy that follows the scripts, by session; `stopped` gets its name."""
    tokenizer = tiny.tokenizer()

    class Policy(TokenPolicy):
        def close(self, session):
            super().close(session)
            self.sampler.seen.pop(session, None)  # a session of the same name begins its script again

        async def stop(self):
            if stopped is not None:
                stopped.append(self.name)
            await super().stop()

    def opened(model, **engine):
        return Policy(ScriptedSampler(tokenizer, scripts, name=model), Renderer(tokenizer))

    return opened
