"""Questions with known answers, written from a person's own documents by the model before any training.

askable_facts.py       a statement and a short span in it, picked by patterns: the answer, chosen before the question
folder_names.py        what a folder of documents is about, if its name says so
prompts.py             what the model is asked, one short turn each; prompt_examples.py: the examples in it
drafts.py              facts to be asked about, and the questions that the model wrote for them
checks.py              checks of a question: rules, then attempts at it with its passage and without
chains.py              a name in a checked question replaced by a description that another document gives
comparisons.py         two checked facts compared
templates.py           whether a comparison asks what its template asks
choice_questions.py    a checked fact asked as a choice of two answers, and for yes or no
journal.py             what a writer has finished, so that it goes on after a kill
checked_question.py    a question as it is kept, and the settings of its writer
writer.py              from an index to a list of checked questions
links.py               which pages name which others, for the proposer's lessons
rejection_sampling.py  the solver's own right episodes on checked questions
proposer_lessons.py    checked questions as a proposer's episodes
"""
