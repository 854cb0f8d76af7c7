"""One file per method, server and client side together."""
