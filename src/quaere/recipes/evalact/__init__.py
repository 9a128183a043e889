"""EvalAct: what a search was worth is said in an action of its own, and weighs what is learned from it."""
