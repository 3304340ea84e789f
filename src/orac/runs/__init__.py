"""Run directories: everything that a run writes to disk.

`directory` locks the directory of a run and opens its logs (`loggers`) and its checkpoints
(`checkpoint`). `replay_segments` saves the replay as it grows, `arrays` defines the binary
file format, and `atomic_io` makes writes atomic. `machine` describes the computer, and
`progress` shows how far a run is. No module here depends on the agent or the environment.
"""
