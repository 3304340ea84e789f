"""Train agents: a compiled loop for JAX environments, a host loop for all others."""
