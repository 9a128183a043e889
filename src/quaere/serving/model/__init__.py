"""A model behind OpenAI's chat API, so that agents of other projects can use it.

wire         request formats and the error format
generation   messages to token ids and sampled tokens to responses; the text of a message cannot become a control token
replies      responses in the format clients expect, of a model or of a search agent
retriever    the retriever and the pages of an index; texts to vectors
app          the routes and the ASGI application
"""
