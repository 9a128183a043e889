"""The corpus selector: which documents and question types a proposer gets, learned by bandits (EVE-Agent, App. F)."""
