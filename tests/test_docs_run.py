"""What the documentation shows, run as a user would: in a fresh virtual environment.

Only numbers of steps and episodes are made smaller, and each replacement must be found.
"""

import re
import shlex
from pathlib import Path

import pytest

from conftest import CACHE, run

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {"JAX_COMPILATION_CACHE_DIR": str(CACHE), "COLUMNS": "100"}
QUICK = {"20_000": "1_200", "episodes=100": "episodes=4"}
QUICK_TUTORIAL = {
    "40_000": "1_400",
    "episodes=1000": "episodes=40",
    "range(400)": "range(60)",
    "costs[-40:]": "costs[-6:]",
}
QUICK_SHELL = {
    "--total-steps 300000": "--total-steps 640 --quiet --set training.learning_starts=300 "
    "--set agent.hidden_sizes=[8,8] --set evaluation.episodes=4",
    "--episodes 1000": "--episodes 40",
}
# Tested where they belong: installing by the fixtures, setting up and testing by whoever
# runs this test, the paper's tables (hours) by tests of their own.
NOT_HERE = ("pip ", "make ", "orac reproduce ")


def blocks(page, language):
    """Fenced blocks of one language; no language means the shell's."""
    text = (ROOT / page).read_text()
    # All of them, since the end of one in another language looks like a beginning.
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [code for spoken, code in found if spoken == language]


def shorten(text, replacements):
    for long, short in replacements.items():
        assert long in text, f"{long!r} is to be made shorter and is not there"
        text = text.replace(long, short)
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "replacements"),
    [
        ("README.md", QUICK),
        ("docs/index.md", QUICK),
        ("docs/tutorial.md", QUICK_TUTORIAL),
        ("docs/guarded_maze.md", {}),
    ],
)
def test_the_python_of_a_page_runs(page, replacements, report_venv, tmp_path):
    script = tmp_path / "page.py"
    script.write_text(shorten("\n".join(blocks(page, "python")), replacements))
    told = run(report_venv / "python", script, cwd=tmp_path, **ENVIRONMENT)
    assert told
    for policy in re.findall(r'export\("([\w.]+)"\)', script.read_text()):
        assert (tmp_path / policy).exists()


@pytest.mark.slow
def test_the_shell_of_the_readme_runs(report_venv, tmp_path):
    text = shorten("\n".join(blocks("README.md", "")), QUICK_SHELL)
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(NOT_HERE)]
    assert len(lines) >= 7
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "orac", line
        assert run(report_venv / "orac", *words, cwd=tmp_path, **ENVIRONMENT), line
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(1800)  # four minutes alone, three times that beside other tests
def test_the_demo_finds_the_long_way(report_venv, tmp_path):
    # A make that runs these tests would have this one tell of directories too.
    target = run("make", "-n", "--no-print-directory", "demo", cwd=ROOT).splitlines()[
        -1
    ]
    assert shlex.split(target)[-2:] == [".venv/bin/orac", "demo"]
    told = run(report_venv / "orac", "demo", cwd=tmp_path, **ENVIRONMENT)
    assert "\nfound the long path" in told
    assert (tmp_path / "demo/maze.png").exists()


EXAMPLES = {
    "own_environment.py": ["--steps", "1400", "--months", "40"],
    "compare_risk_measures.py": [
        *("--measures", "mean", "cvar"),
        *("--steps", "6000", "--episodes", "50"),
    ],
    "building_control.py": ["--steps", "800", "--months", "3"],
}


def test_every_example_is_run():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_draws(name, report_venv, tmp_path):
    picture = tmp_path / "picture.png"
    script = [ROOT / "examples" / name, *EXAMPLES[name], "--out", picture]
    told = run(report_venv / "python", *script, cwd=tmp_path, **ENVIRONMENT)
    assert f"picture: {picture}" in told
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_how_it_is_run(name):
    path = ROOT / "examples" / name
    text = path.read_text()
    assert text.startswith('"""') and f"python examples/{name}" in text
    assert 'if __name__ == "__main__":' in text
