"""How a conversation is written down: messages to token ids, tags, tool calls, and the protocols. Pure: no model."""
