"""Adapter that steps any Gymnasium environment in batches on the host.

`make` makes the environments, `wrapper` wraps a single one and saves its state, `vector`
steps the batch, `costs` reads and checks the costs, and `metadata` reads the metadata and
the spaces.
"""
