"""Train many runs at a time: the loop, its backends, and the worker process."""
