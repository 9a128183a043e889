"""The EvalAct dialect: JSON calls; the policy evaluates and scores each of its searches."""
