"""Episodes: a policy writes turns, the environment answers, until an answer or a limit."""
