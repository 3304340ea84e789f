"""Find Python code that could execute code from a data file."""

import ast

UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}


def unsafe_parts(source: str) -> list[str]:
    """Return each import of a pickle module, and each `allow_pickle` that may be true."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if node.value in UNSAFE else []
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            value = node.value
            if not isinstance(value, ast.Constant) or value.value is not False:
                names = ["allow_pickle"]
        found += [n for n in names if n.partition(".")[0] in {*UNSAFE, "allow_pickle"}]
    return found
