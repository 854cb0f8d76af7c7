"""Learning where parties hold different columns about the same people: first, who these are."""
