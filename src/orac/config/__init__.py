"""The settings of a run: schema, validation, presets and YAML."""
