"""Questions with known answers, written from a person's own documents by a model that was taught nothing.

facts.py         a sentence and a short span in it, picked by rules: the answer comes first
links.py         which pages name which others
prompts.py       what the model is asked, one short turn each
checks.py        what a question must pass: rules, then tries with its page and without it
drafts.py        facts as questions to be worded
compositions.py  checked facts put together: chains and comparisons
writer.py        from an index to a list of checked questions
lessons.py       the solver's own right episodes on checked questions
proposals.py     checked questions as a proposer's episodes
"""
