"""The paper's tables and figures, one small file each, named after what it reproduces.

A file says which runs there are (`STUDY.cases`) and what is made of them. `study` has
the words for that, `paper` the paper's own numbers, `comparison` the tables that set the
two side by side, `curves` the figures, `recording` what is kept in `results/`, and
`command` carries a study out with `orac.experiments.launcher.schedule`.
"""
