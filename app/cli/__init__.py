"""The `foldline` command."""
