"""Questions with known answers, written from a person's own documents by the model before any training.

facts.py         a sentence and a short span in it, picked by rules: the answer, chosen before the question
links.py         which pages name which others
prompts.py       what the model is asked, one short turn each
checks.py        checks of a question: rules, then attempts at it with its page and without
drafts.py        facts to be asked about, before the model has worded a question
compositions.py  checked facts put together: chains and comparisons
writer.py        from an index to a list of checked questions
lessons.py       the solver's own right episodes on checked questions
proposals.py     checked questions as a proposer's episodes
"""
