"""Advantages and losses: functions on tensors, without models or files."""
