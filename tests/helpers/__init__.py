"""Shared helpers of the tests."""

# The type checker is named in pyproject.toml and must be an attribute of this package.
from helpers import typechecker as typechecker
