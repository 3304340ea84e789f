"""The maths of the agents: pure functions without environments, files or clocks."""
