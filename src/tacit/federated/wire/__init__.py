"""What happens to a message between a client and the server: one file per stage."""
