"""Why things were or were not done: Reason, Rejection, Decision."""
