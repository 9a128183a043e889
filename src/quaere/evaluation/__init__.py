"""How good a policy is: greedy episodes over a question set, scores with intervals, paired comparisons."""
