"""Experiments: the paper's tables and figures, ablations, and sweeps over a grid.

`table1` and `tables_2_and_3` hold the tables of the paper and the figures made from the same
runs, `ablations` the studies of its appendix, and `sweep` grids that a user writes.
`study` defines what a study is, `run_study` runs one, and `launcher` trains its runs.
"""
