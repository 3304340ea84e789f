"""Adapter that steps any Gymnasium environment in batches on the host.

`make` makes the environment, `wrapper` wraps a single one, `vector` steps the batch,
`costs` reads or computes its costs, `metadata` reads its spaces and declarations, and
`env_state` saves its state.
"""
