"""Parts of a training step that recipes combine: tasks, proposals, attempts, curriculum filter, rewards, update."""
