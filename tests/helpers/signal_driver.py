"""Run the program `orac` and send it a signal at a given moment of the program.

    python signal_driver.py SIGTERM 'open:metrics.csv:2' train --quiet

The moment does not depend on the machine's speed. It has three parts: a kind of event, a text,
and a count. The signal is sent at the count-th event whose name contains the text. Most kinds
are audit events of Python, whose name is their first argument: `import:jax:1`,
`open:meta.json:1`, `os.rename:step-:1`, `subprocess.Popen::1`. The kind `call` is the call of
a method, `call:orac.training.device_loop.DeviceRunner.advance:2`, and the kind `jax` is an
event whose duration JAX reports, `jax:backend_compile:3`.
"""

import importlib
import os
import runpy
import signal
import sys


def main():
    number = getattr(signal, sys.argv[1])
    kind, text, count = sys.argv[2].split(":")
    sys.argv = ["orac", *sys.argv[3:]]
    left = [int(count)]

    def happened(name):
        if text not in name:
            return
        left[0] -= 1
        if left[0] == 0:
            print(f"signal at {kind} {name}", flush=True)
            os.kill(os.getpid(), number)

    # In background jobs of a shell, and so in tests there, Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if kind == "call":
        import orac

        module, owner, name = text.rsplit(".", 2)
        place = getattr(importlib.import_module(module), owner)
        original = getattr(place, name)

        def called(*arguments, **keywords):
            happened(text)
            return original(*arguments, **keywords)

        setattr(place, name, called)
    elif kind == "jax":
        from jax import monitoring

        import orac  # noqa: F401

        monitoring.register_event_duration_secs_listener(
            lambda event, seconds, **more: happened(event)
        )
    else:

        def hook(event, arguments):
            if event == kind:
                happened(str(arguments[0]))

        sys.addaudithook(hook)
    runpy.run_module("orac", run_name="__main__")


if __name__ == "__main__":
    main()
