"""Conversations as text and token ids: messages, chat templates, tags, tool calls, protocols. No model is needed."""
