"""Other ways to a private step, each in a file of its own and each only where it is installed."""
