"""The sequential scheduler: one pod after another, each to the first node that takes it."""
