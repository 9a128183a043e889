"""Which documents and question types a proposer is given, learned from what came of them (EVE-Agent, App. F)."""
