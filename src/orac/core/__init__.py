"""The maths of the agents: pure functions that use neither environments nor files."""
