"""Questions with known answers, which the untrained model writes from the user's own documents.

askable_facts.py       a statement and a short span in it, picked by patterns: the answer, chosen before the question
page_names.py          what a folder is about, if its name says so; which pages name which others
prompts.py             the prompts for the model, one short turn each; prompt_examples.py: the examples in them
checked_question.py    a question from draft to file; the journal, from which an interrupted writer resumes
checks.py              checks of a question: rules, then attempts to answer it with its passage and without
chains.py              a name in a checked question replaced by a description that another document gives
comparisons.py         two checked facts compared; a checked fact asked as a choice of two answers, and for yes or no
unanswerable.py        questions about what the documents do not say
writer.py              from an index to a list of checked questions
document_lessons.py    the solver's own correct episodes on checked questions, and scripted episodes of a proposer
"""
