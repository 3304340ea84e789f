"""Tests that run the code of the documentation in a fresh virtual environment, as a user would.

Only the numbers of steps and episodes are made smaller.
"""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from conftest import CACHE, run

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {"JAX_COMPILATION_CACHE_DIR": str(CACHE), "COLUMNS": "100"}
SHORTER_README = {
    "50_000": "1_400",
    "episodes=100": "episodes=4",
    "certify()": "certify(episodes_max=40)",
}
SHORTER_TUTORIAL = {
    "40_000": "1_400",
    "episodes=1000": "episodes=40",
    "episodes_max=5000": "episodes_max=40",
    "range(400)": "range(60)",
    "costs[-40:]": "costs[-6:]",
}
SHORTER_COMMANDS = {
    "--total-steps 160000": "--total-steps 640 --quiet --set training.learning_starts=300 "
    "--set agent.hidden_sizes=[8,8] --set evaluation.episodes=4",
    "--episodes 1000": "--episodes 40",
}
# Not run here: the fixtures install the package, whoever runs this test has set it up, the
# paper's tables, which take hours, have their own tests, and so has the certificate, which
# a policy that has learned nothing may not get.
NOT_RUN = ("pip ", "make ", "orac reproduce ", "orac certify ")


def blocks(page, language):
    """Return the fenced code blocks in one language; the shell's have no language."""
    text = (ROOT / page).read_text()
    # Match blocks of all languages, because the end of a block looks like a beginning.
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


def shorten(text, replacements):
    for long, short in replacements.items():
        assert long in text, f"{long!r} should be replaced but is not in the text"
        text = text.replace(long, short)
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "replacements"),
    [
        # The start page has the same example (`test_docs.py` compares them).
        ("README.md", SHORTER_README),
        ("docs/tutorial.md", SHORTER_TUTORIAL),
        ("docs/guarded_maze.md", {}),
    ],
)
def test_the_python_code_of_a_page_runs(page, replacements, report_venv, tmp_path):
    script = tmp_path / "page.py"
    script.write_text(shorten("\n".join(blocks(page, "python")), replacements))
    output = run(report_venv / "python", script, cwd=tmp_path, **ENVIRONMENT)
    assert output
    for policy in re.findall(r'export\("([\w.]+)"\)', script.read_text()):
        assert (tmp_path / policy).exists()


@pytest.mark.slow
def test_the_commands_of_the_readme_run(report_venv, tmp_path):
    text = shorten("\n".join(blocks("README.md", "")), SHORTER_COMMANDS)
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(NOT_RUN)]
    assert len(lines) >= 7
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "orac", line
        assert run(report_venv / "orac", *arguments, cwd=tmp_path, **ENVIRONMENT), line
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(
    1800
)  # It takes four minutes alone, or twelve next to other tests.
def test_the_demo_ends_with_a_certificate(report_venv, tmp_path):
    # Without the option, make prints its directory if make itself runs these tests.
    make = ("make", "-n", "--no-print-directory", "demo")
    commands = run(*make, cwd=ROOT, MAKEFLAGS="").splitlines()
    assert shlex.split(commands[-1])[-2:] == [".venv/bin/orac", "demo"]
    output = run(report_venv / "orac", "demo", cwd=tmp_path, **ENVIRONMENT)
    assert output.splitlines()[-1].startswith("certified: with 95 % confidence")
    assert (tmp_path / "demo/maze.png").exists()


NOTEBOOK = ROOT / "docs/first_hour.ipynb"


def cells_of(path):
    """Return the code cells of a notebook with the kinds of what each displays."""
    cells = json.loads(path.read_text())["cells"]
    return [
        (
            "".join(cell["source"]),
            [sorted(out["data"]) for out in cell["outputs"] if "data" in out],
        )
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def test_the_notebook_is_stored_with_what_it_shows():
    text, cells = NOTEBOOK.read_text(), cells_of(NOTEBOOK)
    shown = [kinds for _, outputs in cells for kinds in outputs]
    assert sum("image/png" in kinds for kinds in shown) == 2
    assert sum("text/html" in kinds for kinds in shown) >= 2
    assert "certified: with 95 % confidence" in text
    assert '"output_type": "error"' not in text and '"name": "stderr"' not in text
    assert not re.search(r"/(work|tmp|root|home)/", text)
    assert NOTEBOOK.stat().st_size < 300_000


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_is_stored(tmp_path):
    again = tmp_path / NOTEBOOK.name
    again.write_bytes(NOTEBOOK.read_bytes())
    program = Path(sys.executable).with_name("jupyter-execute")
    run(program, "--inplace", again, cwd=tmp_path, **ENVIRONMENT)
    assert cells_of(again) == cells_of(NOTEBOOK)
    assert "certified: with 95 % confidence" in again.read_text()


EXAMPLES = {
    "own_environment.py": ["--steps", "1400", "--months", "40"],
    "compare_risk_measures.py": [
        *("--measures", "mean", "cvar"),
        *("--steps", "6000", "--episodes", "50"),
    ],
    "building_control.py": ["--steps", "800", "--months", "3"],
    "image_encoder.py": ["--steps", "1200", "--episodes", "10"],
}


def test_every_example_is_tested():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_draws_a_picture(name, report_venv, tmp_path):
    picture = tmp_path / "picture.png"
    script = [ROOT / "examples" / name, *EXAMPLES[name], "--out", picture]
    output = run(report_venv / "python", *script, cwd=tmp_path, **ENVIRONMENT)
    assert f"picture: {picture}" in output
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_docstring_of_an_example_has_its_command(name):
    text = (ROOT / "examples" / name).read_text()
    assert text.startswith('"""') and f"python examples/{name}" in text
    assert 'if __name__ == "__main__":' in text
