"""One file per rule that turns the clients' rows into one: (K, P) -> (P,)."""
