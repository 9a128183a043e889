"""Questions with known answers, written from a person's own documents by the model before any training.

askable_facts.py       a statement and a short span in it, picked by patterns: the answer, chosen before the question
page_names.py          what a folder is about, if its name says so; which pages name which others
prompts.py             what the model is asked, one short turn each; prompt_examples.py: the examples in it
checked_question.py    a question from draft to file; the journal, so that a writer goes on after a kill
checks.py              checks of a question: rules, then attempts at it with its passage and without
chains.py              a name in a checked question replaced by a description that another document gives
comparisons.py         two checked facts compared; a checked fact asked as a choice of two answers, and for yes or no
writer.py              from an index to a list of checked questions
document_lessons.py    the solver's own right episodes on checked questions, and a proposer's that arrive at them
"""
