"""The type checker of all annotations in tests. It accepts an int where a float is annotated."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
