"""Run an exported policy with only NumPy, without JAX or Gymnasium.

    policy = orac.policy.load("policy.npz")
    action = policy(observation)

This file imports no other module of orac, so it can be copied to where the policy runs.
"""

import json
import math
import os
import stat
import struct
import zipfile

import numpy as np

FORMAT = 1
MAX_ARRAYS = 1000
MAX_BYTES = 1 << 30
MAX_DIRECTORY_BYTES = 1 << 20
"""Limits on the file of a policy, which are checked before its arrays are read.

They are the number of arrays, their size in total, and the size of the zip file's list of
members.
"""
END_OF_ZIP = struct.Struct("<4s4H2LH")
"""Layout of the last record of a zip file."""


class NotFinite(ValueError):
    """A number of a policy is infinite or NaN."""


class Policy:
    """A squashed Gaussian policy. If you call it with an observation, it returns an action.

    `arrays` is a dict with the arrays of a file that `Agent.export` wrote. Error messages use
    `path` as the name of the file. Arrays that do not fit together raise a ValueError.
    """

    def __init__(self, arrays, path="the policy"):
        self.arrays = arrays
        if arrays.get("format", FORMAT) != FORMAT:
            raise ValueError(f"{path} was written by another version of orac")
        self.num_layers = int(arrays["num_layers"])
        if self.num_layers != sum(name.endswith("/weight") for name in arrays):
            raise ValueError(
                f"{path} does not have the number of layers that it claims"
            )
        self.deterministic = bool(arrays.get("deterministic", True))
        self.generator = np.random.default_rng()
        text = bytes(arrays.get("observation_structure", b""))
        self.structure = json.loads(text, object_pairs_hook=unique) if text else None
        """Structure of the environment's observations, or None if they are vectors."""
        for name, values in arrays.items():
            if not np.isfinite(values).all():
                raise NotFinite(
                    f"{path} must contain finite numbers, but its {name} does not: it was "
                    "damaged, or its training had diverged. Export the last good checkpoint "
                    "instead."
                )
        # Check the shapes, because NumPy might broadcast a vector of another shape.
        size = len(arrays["layer0/weight"]) - len(arrays.get("pivot", ()))
        shapes = {"observation_mean": (size,), "observation_scale": (size,)}
        for i in range(self.num_layers):
            width = arrays[f"layer{i}/weight"].shape[1:]
            names = ("bias", "scale", "offset")
            shapes.update({f"layer{i}/{name}": width for name in names})
        for name, shape in shapes.items():
            if name in arrays and arrays[name].shape != shape:
                raise ValueError(f"{name} of {path} does not have the shape {shape}")
        # One call with zeros finds missing arrays, and shapes that do not fit together.
        action = self(np.zeros(size, np.float32), np.zeros(len(arrays["action_low"])))
        if action.shape != arrays["action_low"].shape:
            raise ValueError(f"the last layer of {path} does not fit its actions")
        if not (arrays["action_low"] <= arrays["action_high"]).all():
            raise ValueError(f"the lowest actions of {path} are above the highest")
        if self.structure is not None and flat_size(self.structure) != size:
            raise ValueError(f"the first layer of {path} does not fit its observations")

    def __call__(self, observation, noise=None):
        """Return the action for one observation, or one action per row of a batch.

        An observation is a flat vector, or a dict, tuple or number as the environment
        returns it. Actions are in the environment's action space. If `noise` is given
        (standard normal numbers in the shape of the action), the action is sampled with it.
        Otherwise, the action is the mean if the attribute `deterministic` is True, and a
        random sample if it is False.
        """
        arrays = self.arrays
        size = len(arrays["layer0/weight"]) - len(arrays.get("pivot", ()))
        given = observation_rows(observation, size, self.structure)
        rows = np.atleast_2d(given)
        if "observation_mean" in arrays:
            scaled = (rows - arrays["observation_mean"]) * arrays["observation_scale"]
            rows = np.clip(scaled, -10, 10)
        # A policy of the dual form of CVaR has an additional constant input, the pivot.
        if "pivot" in arrays:
            pivot = np.tile(arrays["pivot"], (len(rows), 1))
            rows = np.concatenate([rows, pivot], axis=1)
        for i in range(self.num_layers):
            rows = self._layer(i, rows)
            if i < self.num_layers - 1:
                rows = np.maximum(rows, 0)
        mean, raw = np.split(rows, 2, axis=1)
        if noise is None and not self.deterministic:
            noise = self.generator.standard_normal(mean.shape)
        if noise is not None:
            try:
                noise = np.asarray(noise, float)
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError("noise must be an array of numbers.") from error
            if not np.isfinite(noise).all():
                raise ValueError(
                    "noise must be finite, as standard normal numbers are."
                )
            if noise.shape not in ((), mean.shape, mean.shape[1:]):
                raise ValueError(
                    f"noise must have the shape of the action, {mean.shape[1:]}, got "
                    f"{noise.shape}."
                )
            low, high = arrays["log_std_range"]
            std = np.exp((high + low) / 2 + (high - low) / 2 * np.tanh(raw))
            mean = mean + std * noise
        low, high = arrays["action_low"], arrays["action_high"]
        action = low + (np.tanh(mean) + 1) / 2 * (high - low)
        if not np.isfinite(action).all():
            raise NotFinite(
                "the policy's action must be finite, but for this observation it is not, "
                "because the policy's weights are too large. Export an earlier checkpoint."
            )
        return action[0] if given.ndim == 1 else action

    def _layer(self, i, rows):
        """Apply a linear layer and, if the layer has one, its layer normalisation."""
        arrays = self.arrays
        rows = rows @ arrays[f"layer{i}/weight"] + arrays[f"layer{i}/bias"]
        if f"layer{i}/scale" in arrays:
            centred = rows - rows.mean(axis=1, keepdims=True)
            spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
            rows = centred / spread * arrays[f"layer{i}/scale"]
            rows = rows + arrays[f"layer{i}/offset"]
        return rows


def observation_rows(observation, size, structure=None):
    """Return one observation or a batch as float32, or raise an error if it is invalid.

    An observation that is not flat is flattened according to `structure`.
    """
    if structure is not None and _has_structure(observation, size, structure):
        observation = flatten(observation, structure)
    try:
        rows = _to_float32(observation)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"observation must be an array of {size} real numbers or a batch of such rows, got "
            f"a {type(observation).__name__}. Flatten a Dict or Tuple observation first, "
            "for example with gymnasium.spaces.flatten."
        ) from error
    if rows.ndim not in (1, 2) or rows.shape[-1] != size:
        raise ValueError(
            f"observation must have shape ({size},) or (batch, {size}), got "
            f"{rows.shape}. Flatten it to the environment's observation space."
        )
    if not np.isfinite(rows).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        raise ValueError(
            f"observation must be finite, got {rows[place]} at index {list(place)}. Check "
            "the sensor or the environment that returned it."
        )
    return rows


def _to_float32(observation):
    """Return an observation as float32.

    Texts and complex numbers raise an error, because NumPy would convert the text "1" to a
    number and drop the imaginary part.
    """
    array = np.asarray(observation)
    if array.dtype.kind in "SUc":
        raise TypeError(f"{array.dtype} is not a type of real numbers")
    if array.dtype.kind == "O" and any(isinstance(x, str | bytes) for x in array.flat):
        raise TypeError("a text is not a number")
    return np.asarray(observation, np.float32)


def _has_structure(observation, size, structure):
    """Return whether an observation still has its structure and is not flat yet."""
    kind = structure["kind"]
    if isinstance(observation, dict):
        return True
    if kind == "tuple" and isinstance(observation, tuple):
        nested = any(np.ndim(part) > 0 for part in observation)
        return nested or len(observation) != size
    try:
        shape = np.shape(observation)
    except ValueError:  # The parts have different lengths.
        return True
    if kind == "choices" and not structure["shape"]:
        # Several numbers could be a batch of a Discrete space or a flat vector. They count
        # as a flat vector.
        return shape == ()
    return len(shape) not in (1, 2) or shape[-1] != size


def flatten(observation, structure, name="observation"):
    """Flatten an observation as `gymnasium.spaces.flatten` does.

    `structure` describes the observation space. Exported policies contain it: it is the
    attribute `structure` of a `Policy`, and `observation_structure` in the metadata of an
    ONNX file, as JSON. Every array of the observation may have an additional first axis for
    a batch. The parts of a dict or tuple are joined in order, and a whole number of a
    Discrete space becomes a vector with a single 1.
    """
    kind = structure["kind"]
    if kind in ("dict", "tuple"):
        parts = structure["parts"]
        keys = [*parts] if kind == "dict" else range(len(parts))
        fits = isinstance(observation, dict if kind == "dict" else (tuple, list))
        if not fits or len(observation) != len(keys):
            raise _misfit(name, structure, observation)
        if kind == "dict" and any(key not in observation for key in keys):
            raise _misfit(name, structure, observation)
        rows = [flatten(observation[k], parts[k], f"{name}[{k!r}]") for k in keys]
        if len({row.shape[:-1] for row in rows}) > 1:
            raise ValueError(
                f"the parts of {name} must all be single or all be batches of the same size, "
                f"got {', '.join(str(row.shape[:-1]) for row in rows)}."
            )
        return np.concatenate(rows, axis=-1)
    shape = tuple(structure["shape"])
    try:
        array = _to_float32(observation)
    except (TypeError, ValueError, OverflowError) as error:
        raise _misfit(name, structure, observation) from error
    batch = array.ndim - len(shape)
    if array.shape[batch:] != shape or batch not in (0, 1):
        raise _misfit(name, structure, array)
    rows = array.reshape(*array.shape[:batch], -1)
    if kind == "box":
        return rows
    choices = []
    for i, (least, count) in enumerate(
        zip(structure["start"], structure["n"], strict=True)
    ):
        places = rows[..., i] - least
        if not np.isin(places, range(count)).all():
            raise ValueError(
                f"{name} must be whole numbers from {least} to {least + count - 1}, got "
                f"{np.asarray(observation).tolist()}."
            )
        choices.append(places[..., None] == np.arange(count))
    return np.concatenate(choices, axis=-1).astype(np.float32)


def flat_size(structure):
    """Return the size of a flattened observation of this structure."""
    kind = structure["kind"]
    if kind in ("dict", "tuple"):
        parts = structure["parts"]
        return sum(map(flat_size, parts.values() if kind == "dict" else parts))
    if kind not in ("box", "choices"):
        raise ValueError(f"observations of the kind {kind!r} are not known")
    return sum(structure["n"]) if kind == "choices" else math.prod(structure["shape"])


def _misfit(name, structure, observation):
    """Return the error for an observation that does not fit its space."""
    kind, found = structure["kind"], f"a {type(observation).__name__}"
    if kind == "dict":
        expected = f"a dict with the keys {', '.join(structure['parts'])}"
    elif kind == "tuple":
        expected = f"a tuple of length {len(structure['parts'])}"
    else:
        expected = f"an array of shape {tuple(structure['shape'])}"
    if isinstance(observation, dict):
        found = f"a dict with the keys {', '.join(map(str, observation)) or '(none)'}"
    elif kind == "tuple" and isinstance(observation, (tuple, list)):
        found = f"a {type(observation).__name__} of length {len(observation)}"
    elif isinstance(observation, np.ndarray):
        found = f"an array of shape {observation.shape}"
    return ValueError(
        f"{name} must be {expected}, got {found}. Pass it as the environment returns it, "
        "or the whole observation as one flat vector."
    )


def load(path):
    """Return the policy from a file of `Agent.export`. No code in the file is executed."""
    # This rejects the number of an open file, which `open` would accept.
    path = os.fspath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(
            f"{path} must be a policy written by Agent.export as .npz, but it is a directory."
        )
    # Without O_NONBLOCK, opening a pipe would wait until another process writes to it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        try:
            return Policy(read_arrays(stream), path)
        except NotFinite:
            raise
        except Exception as error:  # The errors of NumPy's readers share no base class.
            raise ValueError(
                f"{path} must be a policy written by Agent.export as .npz, but it is another "
                "kind of file or incomplete. Use orac.load for a file of Agent.save, ONNX "
                "Runtime for .onnx and jax.export.deserialize for .stablehlo."
            ) from error


def unique(pairs):
    """Return the dict of a JSON object; a key that occurs twice raises an error."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def open_archive(stream):
    """Return the ZipFile of an open file, after checking that its list of members is small.

    This check comes first, because Python reads the whole list when it opens a zip file. Our
    files have no comment at the end, so the last 22 bytes contain the size of the list.
    """
    status = os.fstat(stream.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size < END_OF_ZIP.size:
        raise zipfile.BadZipFile("it is not a regular file, or it is too short")
    stream.seek(-END_OF_ZIP.size, os.SEEK_END)
    end = END_OF_ZIP.unpack(stream.read(END_OF_ZIP.size))
    if end[0] != b"PK\5\6" or end[5] > MAX_DIRECTORY_BYTES:
        raise zipfile.BadZipFile("it is not a zip file, or it has too many members")
    return zipfile.ZipFile(stream)


def read_arrays(stream):
    """Return the arrays of an .npz file by name.

    Their sizes are checked before memory is allocated, because a small file can claim
    arrays of any size. Exported policies are not compressed, so compressed arrays, which could
    fill the memory from a small file, are rejected.
    """
    with open_archive(stream) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("the file has compressed arrays")
        if len(members) > MAX_ARRAYS or sum(m.file_size for m in members) > MAX_BYTES:
            raise ValueError("the file is too large for a policy")
        names = [member.filename.removesuffix(".npy") for member in members]
        if len(set(names)) < len(names):
            raise ValueError("the file has two arrays with the same name")
        arrays = (read_array(archive, member) for member in members)
        return dict(zip(names, arrays, strict=True))


def read_array(archive, member):
    """Return one array of an .npz file, or raise an error if its size is not as claimed."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"{member.filename} has another format")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        size = math.prod(shape)
        data = file.read(MAX_BYTES)
        if dtype.kind not in "fiub" or fortran or len(data) != size * dtype.itemsize:
            raise ValueError(f"{member.filename} does not contain what its header says")
    return np.frombuffer(data, dtype).reshape(shape)
