"""EvalAct: the solver evaluates each search in an action of its own, and its scores weigh token advantages."""
