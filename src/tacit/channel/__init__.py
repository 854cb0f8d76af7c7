"""Messages between parties: who they are, where they listen, and how they know each other."""
