"""Rollouts: a policy writes turns and the environment replies, until the policy answers or a limit is reached."""
