"""The settings of a run: their schema, checks, presets and YAML format."""
