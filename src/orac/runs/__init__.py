"""Run directories: everything that a run writes to disk.

`directory` locks a run's directory and hands out its logs (`loggers`) and its checkpoints
(`checkpoint`). `replay_segments` saves the replay as it grows, `arrays` defines the binary
file format and `atomic_io` makes every write atomic. `machine` describes the computer, and
`progress` shows how far a run is. Nothing here depends on the learner or the environment.
"""
