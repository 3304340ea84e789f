"""The `orac` command."""
