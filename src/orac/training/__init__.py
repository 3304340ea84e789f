"""The loops: one compiled scan for JAX environments, a host loop for all others."""
