"""Tests of the completion scripts for shells, run in the shell itself."""

import subprocess

import pytest

from orac.cli.main import COMMANDS, main


def complete(script, line):
    """Return what bash offers for the last word of a command line."""
    words = line.split(" ")
    registered = next(x for x in script.splitlines() if x.startswith("complete "))
    function = registered.split("-F")[1].split()[0]
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
    code += f'{function}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    return done.stdout.split()


def test_bash_completes_commands_options_and_agents(capsys):
    assert main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert {*COMMANDS} <= {*complete(script, "orac ")}
    assert complete(script, "orac eva") == ["evaluate"]
    assert "--total-steps" in complete(script, "orac train --tot")
    assert {"orac", "wcsac"} <= {*complete(script, "orac train --algo ")}
    assert complete(script, "orac train --device c") == ["cpu"]


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script_with_all_commands(shell, capsys):
    assert main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def test_an_unknown_shell_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--print-completion", "fish"])
    assert "invalid choice: 'fish'" in capsys.readouterr().err
