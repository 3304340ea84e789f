"""Train many runs in parallel: the main loop, its backends and the worker process."""
