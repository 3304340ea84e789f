"""What a run leaves on disk, and how it gets there.

`directory` is the way in: a locked run directory that hands out its logs (`loggers`) and
`checkpoint`s. Below them `manifest` says what a checkpoint consists of, `ring` writes the
replay as it grows, `arrays` is the one binary format, `files` makes every write atomic
and every disk error a sentence. `machine` describes what a run ran on, and `progress`
shows it to whoever waits. No room here knows the learner or the environment.
"""
