"""Adapter that steps any Gymnasium environment in batches on the host.

`make` makes the environment, `wrapper` wraps a single one and saves its state, `vector`
steps the batch, `costs` reads or computes its costs, and `metadata` reads its spaces.
"""
