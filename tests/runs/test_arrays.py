"""Tests of saving pytrees of arrays in files and in JSON."""

import errno
import hashlib
import json
import os
import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers.run_examples import assert_same_bits
from orac.runs.arrays import (
    MAGIC,
    PREFIX,
    from_json,
    load_arrays,
    save_arrays,
    to_json,
)
from orac.runs.atomic_io import DamagedFileError, DiskError


@jax.tree_util.register_dataclass
@dataclass
class Counters:
    env_steps: int
    stopped: bool
    seconds: float


class Agent(NamedTuple):
    params: dict[str, Any]
    opt_state: Any
    key: Any
    counters: Counters
    nothing: None = None


def make_agent(fill: float = 0.5) -> Agent:
    params = {"layer 0": {"w": jnp.full((3, 4), fill), "b": jnp.arange(4.0)}}
    opt_state = optax.adam(1e-3).init(params)
    counters = Counters(env_steps=12, stopped=True, seconds=0.1)
    return Agent(params, opt_state, jax.random.key(3), counters)


ODD_BITS = np.array([0x7FC00123, 0xFF800001, 0x80000000, 1], np.uint32).view(np.float32)

TREES = {
    "an agent": make_agent(),
    "odd float bits": {"numpy": ODD_BITS, "jax": jnp.array(ODD_BITS)},
    "small dtypes": [
        jnp.ones(3, t) for t in (jnp.bfloat16, jnp.int8, bool, jnp.uint16)
    ],
    "no rows": {"a": np.zeros((0, 3), np.float32), "b": jnp.zeros((2, 0))},
    "scalars": (np.float32(1.5), np.bool_(True), jnp.int32(7), 2**40, -0.0, False),
    "keys": {
        "one": jax.random.key(0),
        "many": jax.random.split(jax.random.key(1), (2, 3)),
        "rbg": jax.random.key(5, impl="rbg"),
    },
    "a bare array": jnp.arange(5),
    "nothing": (),
    "eight bytes": np.array([1e-300, np.pi]),
}


@pytest.mark.parametrize("name", TREES)
def test_saved_arrays_are_restored_bit_for_bit(tmp_path, name):
    tree = TREES[name]
    save_arrays(tmp_path / "a.arrays", tree)
    loaded = load_arrays(tmp_path / "a.arrays", tree)
    assert_same_bits(loaded, tree)
    kinds = [isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree)]
    assert [isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(loaded)] == kinds


def test_the_template_can_be_abstract(tmp_path):
    tree = {"w": jnp.ones((2, 3)), "key": jax.random.split(jax.random.key(0))}
    save_arrays(tmp_path / "a.arrays", tree)
    assert_same_bits(
        load_arrays(tmp_path / "a.arrays", jax.eval_shape(lambda: tree)), tree
    )


def test_memory_layout_and_byte_order_do_not_matter(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tree = {"fortran": np.asfortranarray(values), "big": values.astype(">f4")}
    save_arrays(tmp_path / "a.arrays", tree)
    loaded = load_arrays(tmp_path / "a.arrays", {"fortran": values, "big": values})
    assert_same_bits(loaded, {"fortran": values, "big": values})


def test_the_same_tree_gives_the_same_file(tmp_path):
    digests = [save_arrays(tmp_path / name, make_agent()) for name in "ab"]
    assert digests[0] == digests[1]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def _without_bias(agent: Agent) -> Agent:
    return agent._replace(params={"layer 0": {"w": agent.params["layer 0"]["w"]}})


def _with_weights(weights: Any) -> Agent:
    bias = jnp.arange(4.0)
    return make_agent()._replace(params={"layer 0": {"w": weights, "b": bias}})


@pytest.mark.parametrize(
    ("saved", "template", "sentence"),
    [
        (_without_bias(make_agent()), make_agent(), r"lacks the expected leaf .*'b'\]"),
        (make_agent(), _without_bias(make_agent()), r"an unexpected leaf .*'b'\]"),
        (
            _with_weights(jnp.ones((3, 5))),
            make_agent(),
            r"'w'\] has shape \(3, 5\), expected \(3, 4\)",
        ),
        (
            _with_weights(jnp.ones((3, 4), jnp.bfloat16)),
            make_agent(),
            "has dtype bfloat16, expected float32",
        ),
        (
            make_agent()._replace(key=jax.random.key(0, impl="rbg")),
            make_agent(),
            "has kind key<rbg>, expected key<fry>",
        ),
        (
            make_agent()._replace(counters=Counters(1, False, 3)),
            make_agent(),
            "seconds has kind int, expected float",
        ),
    ],
)
def test_a_file_that_does_not_fit_the_template_raises_an_error(
    tmp_path, saved, template, sentence
):
    save_arrays(tmp_path / "a.arrays", saved)
    with pytest.raises(ValueError, match=sentence) as caught:
        load_arrays(tmp_path / "a.arrays", template)
    assert "a.arrays" in str(caught.value)
    assert "another configuration" in str(caught.value)
    assert not isinstance(caught.value, DamagedFileError)


@pytest.mark.parametrize(
    ("leaf", "sentence"),
    [
        ("text", r"Leaf \['x'\] is a str; only arrays, keys and numbers"),
        (object(), r"Leaf \['x'\] is a object"),
        (np.array(["a"]), "has dtype <U1; only numbers and booleans"),
        (np.array([None]), "has dtype object"),
        (np.zeros(2, "f4,i4"), "only numbers and booleans"),
        (2**70, "has dtype object"),
    ],
)
def test_only_numbers_can_be_saved(tmp_path, leaf, sentence):
    with pytest.raises(TypeError, match=sentence):
        save_arrays(tmp_path / "a.arrays", {"x": leaf})
    assert os.listdir(tmp_path) == []


def test_doubles_are_not_silently_converted_to_singles(tmp_path):
    save_arrays(tmp_path / "a.arrays", np.array([0.1]))
    with pytest.raises(
        ValueError, match=r"JAX would cut it to float32. Set jax_enable_x64"
    ):
        load_arrays(tmp_path / "a.arrays", jax.ShapeDtypeStruct((1,), np.float64))


SMALL = {"w": np.arange(3, dtype=np.float32)}


def test_every_flipped_bit_is_detected(tmp_path):
    path = tmp_path / "a.arrays"
    save_arrays(path, SMALL)
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(
            good[:position]
            + bytes([good[position] ^ (1 << position % 8)])
            + good[position + 1 :]
        )
        with pytest.raises(
            DamagedFileError,
            match=r"a.arrays is (not a file of orac|truncated or altered)",
        ):
            load_arrays(path, SMALL)


def test_every_truncation_is_detected(tmp_path):
    path = tmp_path / "a.arrays"
    save_arrays(path, SMALL)
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(DamagedFileError, match=r"a.arrays is truncated"):
            load_arrays(path, SMALL)
    path.write_bytes(good + b"\0")
    with pytest.raises(DamagedFileError, match="checksum"):
        load_arrays(path, SMALL)


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def with_checksum(header: Any, data: bytes = b"", version: int = 1) -> bytes:
    """Return a file with a correct checksum around any content, as an attacker would."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = PREFIX.pack(MAGIC, version, len(header)) + header + data
    return body + hashlib.sha256(body).digest()


def test_a_pickle_is_never_run(tmp_path):
    payload = pickle.dumps(Bomb(tmp_path / "exploded"))
    entry = {"path": "['w']", "kind": "array", "dtype": "float32", "shape": [3]}
    as_object = {**entry, "dtype": "object", "shape": [len(payload) // 8]}
    np.save(tmp_path / "object.npy", np.array([Bomb(tmp_path / "exploded")]))
    crafted = [
        payload,
        (tmp_path / "object.npy").read_bytes(),
        MAGIC + payload,
        with_checksum(payload),
        with_checksum([as_object], payload[: len(payload) // 8 * 8]),
        with_checksum([{**entry, "kind": "object"}], bytes(12)),
        with_checksum([{**entry, "dtype": "O"}], bytes(24)),
    ]
    for content in crafted:
        (tmp_path / "a.arrays").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.arrays"):
            load_arrays(tmp_path / "a.arrays", SMALL)
    assert not (tmp_path / "exploded").exists()
    pickle.loads(payload)
    assert (tmp_path / "exploded").exists(), "the pickle did nothing"


ENTRY = {"path": "['w']", "kind": "array", "dtype": "float32", "shape": [3]}
TWICE = json.dumps([ENTRY]).replace('"shape"', '"shape": [2], "shape"').encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "truncated"),
        (b"PK\x03\x04 some zip", "not a file of orac: its first bytes are wrong"),
        (b"step,reward\n1,2\n", "not a file of orac"),
        (with_checksum(b"\xff not JSON"), "header cannot be read"),
        (with_checksum({"path": 1}), "header cannot be read"),
        (with_checksum([{**ENTRY, "shape": 3}], bytes(12)), "header cannot be read"),
        (with_checksum(b"[" * 100_000), "header cannot be read"),
        (with_checksum(TWICE, bytes(12)), "header cannot be read"),
        (with_checksum([ENTRY, ENTRY], bytes(24)), "names a leaf twice"),
        (with_checksum([ENTRY], bytes(11)), "header does not fit its size"),
        (with_checksum([{**ENTRY, "shape": [10**12]}]), "has shape"),
        (with_checksum([{**ENTRY, "shape": [-3]}]), "has shape"),
        (
            with_checksum([ENTRY], bytes(12), version=2),
            "has format 2; this version of orac reads formats up to 1. Install the newer orac",
        ),
    ],
)
def test_foreign_and_forged_files_raise_an_error(tmp_path, content, sentence):
    (tmp_path / "a.arrays").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        load_arrays(tmp_path / "a.arrays", SMALL)


def test_a_forged_file_with_the_right_content_is_loaded(tmp_path):
    (tmp_path / "a.arrays").write_bytes(with_checksum([ENTRY], SMALL["w"].tobytes()))
    assert_same_bits(load_arrays(tmp_path / "a.arrays", SMALL), SMALL)


def test_another_good_file_in_its_place_is_detected(tmp_path):
    digest = save_arrays(tmp_path / "a.arrays", SMALL)
    save_arrays(tmp_path / "a.arrays", {"w": np.ones(3, np.float32)})
    with pytest.raises(
        DamagedFileError, match="not the file that the checkpoint lists"
    ):
        load_arrays(tmp_path / "a.arrays", SMALL, digest)
    with pytest.raises(DamagedFileError, match=r"b.arrays is missing"):
        load_arrays(tmp_path / "b.arrays", SMALL)


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "a.arrays"
    save_arrays(path, SMALL)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(
            DiskError, match=r"Could not write .*the disk is full"
        ) as caught:
            save_arrays(path, {"w": np.ones(3, np.float32)})
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == ["a.arrays"]
    assert_same_bits(load_arrays(path, SMALL), SMALL)


def test_two_leaves_cannot_share_a_path(tmp_path):
    class Twin:
        def __init__(self, a, b):
            self.a, self.b = a, b

    same = jax.tree_util.GetAttrKey("x")
    jax.tree_util.register_pytree_with_keys(
        Twin,
        lambda twin: ([(same, twin.a), (same, twin.b)], None),
        lambda _, children: Twin(*children),
    )
    with pytest.raises(ValueError, match="same key path"):
        save_arrays(tmp_path / "a.arrays", Twin(1, 2))


def test_arrays_inside_json_are_restored_exactly():
    value = {
        "odd": ODD_BITS,
        "matrix": np.arange(6, dtype=">i2").reshape(2, 3).T,
        "scalar": np.float64(0.1),
        "nested": [None, "text", (True, 2**60)],
    }
    restored = from_json(json.loads(json.dumps(to_json(value))))
    assert restored["odd"].tobytes() == ODD_BITS.tobytes()
    np.testing.assert_array_equal(restored["matrix"], value["matrix"])
    assert restored["matrix"].dtype == value["matrix"].dtype
    assert restored["scalar"] == 0.1 and restored["scalar"].shape == ()
    assert restored["nested"] == [None, "text", [True, 2**60]]


def test_json_cannot_hold_an_array_of_objects():
    with pytest.raises(
        ValueError, match="an array must hold plain numbers, got object"
    ):
        from_json({"__array__": "", "dtype": "O", "shape": [0]})
