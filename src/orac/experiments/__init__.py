"""Experiments: the studies of the paper, sweeps over a grid, and tuning.

`table1` and `tables_2_and_3` define the paper's tables and the figures made from the same
runs. `ablations` defines the studies of the paper's appendix. The study `limit` checks with
fresh seeds whether runs deliver policies within their limits. `sweep` makes a study from a
grid file that a user writes. `study` defines the parts of a study, `run_study` runs one,
`records` stores its numbers, and `launcher` trains its runs. `tune` searches for good
settings.
"""
