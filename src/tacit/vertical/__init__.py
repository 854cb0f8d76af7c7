"""Learning where parties hold different columns of the same people: first, whom they have in common."""
