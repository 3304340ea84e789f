"""CityLearn's 2023 buildings as a pure JAX environment."""
