"""Run directories: everything that a run writes to disk.

`directory` locks the directory of a run and opens its CSV files (`csv_log`) and its
checkpoints (`checkpoint`). `replay_segments` saves the replay as it grows, `arrays` defines
the binary file format, and `atomic_io` makes writes atomic. `trackers` sends metrics to
TensorBoard and similar programs, `machine` describes the computer, and `progress` shows how
far a run is. These modules do not depend on the agent or the environment.
"""
