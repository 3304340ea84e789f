"""Environments: pure JAX ones, Safety-Gymnasium, and an adapter for any Gymnasium one.

Importing this package registers our ids with Gymnasium.
"""

from orac.envs.registry import has_jax_form, make, register_all

__all__ = ["has_jax_form", "make"]

register_all()
