"""Write the manifest of a checkpoint without importing JAX."""

import hashlib
import json

DIGEST = "0" * 64


def write_manifest(directory, step, state_digest=DIGEST):
    """Write a manifest that is intact, and an empty file in place of its state."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {"format": 1, "step": step, "state_digest": state_digest}
    content |= {"replay": None, "extra": {}, "checksum": ""}
    content["checksum"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    name = f"step-{step:012d}"
    (directory / f"{name}-{state_digest[:16]}.arrays").touch()
    (directory / f"{name}.json").write_text(json.dumps(content) + "\n")
