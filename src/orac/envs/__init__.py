"""The worlds: pure JAX environments, and any Gymnasium environment behind one face."""
