"""A model behind the chat interface that other programs speak, so that their agents can be driven by it.

wire        what requests look like, and what is wrong with them
prompting   messages to token ids; what a message says can hold no control token
writing     answers, whole or as they grow; stop strings, tool calls, log-probs
replying    answers in the form clients expect
embedding   texts to vectors
documents   the retriever and the pages of an index
app         the routes; serve runs them
"""
