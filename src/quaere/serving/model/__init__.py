"""A model behind OpenAI's chat API, so that agents of other projects can use it.

wire         request formats and the error format
prompts      messages to token ids; the text of a message cannot become a control token
generation   responses, whole or streamed; stop strings, tool calls, log-probs
replies      responses in the format clients expect
embeddings   texts to vectors
documents    the retriever and the pages of an index
app          the routes and the ASGI application
"""
