"""Environments in pure JAX, Safety-Gymnasium's tasks, and adapters for other libraries.

Importing this package registers our ids with Gymnasium.
"""

from orac.envs.registry import is_jax_env, make, register_all

__all__ = ["is_jax_env", "make"]

register_all()
