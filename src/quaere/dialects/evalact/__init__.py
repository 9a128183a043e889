"""JSON calls, every search evaluated and scored: EvalAct."""
