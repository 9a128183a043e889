BLOCKED: frozenset[str] = frozenset()
