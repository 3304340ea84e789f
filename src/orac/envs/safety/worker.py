"""A process that steps a chunk of environments for another: bytes in, bytes out.

Started as a program of its own rather than forked or spawned: a fork of a process that
runs JAX's threads can hang, and a spawn imports the user's script a second time. Requests
come on standard input, answers leave on what was standard output; anything printed goes
to standard error. Only numbers and JSON travel, so nothing received can run.
"""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence
from io import BufferedIOBase
from typing import Any

import numpy as np

from orac.envs.safety.env_batch import Chunk

HEAD = struct.Struct("<cI")
OPEN, RESET, STEP, GET, SET = b"o", b"r", b"s", b"g", b"t"
ANSWER, FAILURE = b"a", b"f"


class Worker:
    """The other end: has the methods of a `Chunk`, each in two halves to run in parallel."""

    def __init__(self, num_envs: int, settings: dict[str, Any]) -> None:
        opening = _dumps({"num_envs": num_envs, "settings": settings})
        # The same modules are to be found; small matrices gain nothing from threads.
        surroundings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "orac.envs.safety.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=surroundings,
        )
        self._shape = (num_envs, -1)
        self._send(OPEN, opening)

    def opened(self) -> None:
        """Wait until the environments are made."""
        self._receive()

    def start_reset(self, seeds: Sequence[int | None]) -> None:
        self._send(RESET, _dumps(seeds))

    def start_step(self, actions: np.ndarray) -> None:
        self._send(STEP, np.ascontiguousarray(actions, np.float64).tobytes())

    def rows(self) -> np.ndarray:
        """The block that a started reset or step ends in."""
        return np.frombuffer(self._receive()).reshape(self._shape)

    def get_state(self) -> list[dict[str, Any]]:
        self._send(GET, b"")
        return _plain_to_state(json.loads(self._receive()))

    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        self._send(SET, _dumps(states))
        self._receive()

    def close(self) -> None:
        """The worker ends when its input does."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # What the worker did not live to read is flushed into nothing.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _send(self, kind: bytes, payload: bytes) -> None:
        try:
            _write(self._process.stdin, kind, payload)
        except (BrokenPipeError, ValueError) as error:
            raise RuntimeError(self._gone()) from error

    def _receive(self) -> bytes:
        frame = _read(self._process.stdout)
        if frame is None:
            raise RuntimeError(self._gone())
        kind, payload = frame
        if kind == FAILURE:
            raise RuntimeError(
                f"An environment in a worker failed.\n{payload.decode()}"
            )
        return payload

    def _gone(self) -> str:
        return (
            f"A worker process of the environments ended (exit code "
            f"{self._process.poll()}). Its last words are on standard error."
        )


def serve(requests: BufferedIOBase, answers: BufferedIOBase) -> None:
    """Answer requests until there are no more."""
    chunk: Chunk | None = None
    while (frame := _read(requests)) is not None:
        kind, payload = frame
        try:
            if kind == OPEN:
                chunk, answer = Chunk(**json.loads(payload)), b""
            else:
                assert chunk is not None
                answer = _respond(chunk, kind, payload)
        except Exception:
            _write(answers, FAILURE, traceback.format_exc().encode())
        else:
            _write(answers, ANSWER, answer)


def _respond(chunk: Chunk, kind: bytes, payload: bytes) -> bytes:
    if kind == STEP:
        actions = np.frombuffer(payload).reshape(len(chunk.envs), -1)
        return chunk.step(actions).tobytes()
    if kind == RESET:
        return chunk.reset(json.loads(payload)).tobytes()
    if kind == GET:
        return _dumps(chunk.get_state())
    chunk.set_state(_plain_to_state(json.loads(payload)))
    return b""


def _dumps(value: Any) -> bytes:
    return json.dumps(value, default=np.ndarray.tolist).encode()


def _plain_to_state(states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Arrays became lists on the way; JSON keeps every bit of a float."""
    return [{**state, "actions": np.array(state["actions"])} for state in states]


def _write(stream: Any, kind: bytes, payload: bytes) -> None:
    stream.write(HEAD.pack(kind, len(payload)) + payload)
    stream.flush()


def _read(stream: Any) -> tuple[bytes, bytes] | None:
    """The next frame, or None at the stream's end."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    kind, size = HEAD.unpack(head)
    return kind, stream.read(size)


def main() -> None:
    # Ctrl-C is for the process that owns this one; closing the pipe ends both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    # Whoever asked may have closed the pipe, or ended, before the answer was ready.
    with contextlib.suppress(BrokenPipeError):
        serve(requests, answers)


if __name__ == "__main__":
    main()
