"""Groups for private set intersection: each file with a registered class is one group."""
