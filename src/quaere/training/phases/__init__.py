"""What recipes are composed of: drawing tasks, proposing, attempting, generating, and rewards read from episodes."""
