"""Training: the compiled loop for JAX environments, the host loop for all others."""
