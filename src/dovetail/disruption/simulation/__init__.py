"""What if these nodes were removed: base_state is shared by all questions, what_if answers one of them."""
