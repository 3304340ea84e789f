"""Tests of the release: the distributions, the citation file and the release workflow."""

import io
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import PurePath

import numpy as np
import pytest
import yaml

import orac
from conftest import ROOT, make_venv, run
from helpers.unsafe_code import unsafe_parts

CODE = """
import gymnasium, orac, orac.envs
import jax
for env_id in ("orac/GuardedMaze-v0", "orac/CityLearn-v0"):
    env = orac.envs.make(env_id)
    state, observation = env.reset(jax.random.key(0))
    assert observation.shape == (env.spec.observation_size,)
env = gymnasium.make("orac/GuardedMaze-v0")
env.reset(seed=0)
print(env.step(env.action_space.sample())[4]["cost"])
"""


def test_the_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == orac.__version__
    paper = citation["preferred-citation"]
    readme = (ROOT / "README.md").read_text()
    assert paper["url"] in readme
    assert paper["title"] in " ".join(readme.split())


def test_the_demo_installs_only_what_it_needs(tmp_path):
    make = ("make", "--dry-run", "--no-print-directory")
    # Without options of a make that runs these tests, which could be silent or parallel.
    words = (*make, "demo", f"VENV={tmp_path / 'new'}")
    commands = run(*words, cwd=ROOT, MAKEFLAGS="")
    installs = [line for line in commands.splitlines() if "--editable" in line]
    assert [line.split()[-1] for line in installs] == ['".[plots]"']
    assert commands.splitlines()[-1].endswith("bin/orac demo")


def test_the_workflow_runs_the_targets_of_the_makefile_on_every_python():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    job = workflow["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    assert matrix["os"] == ["ubuntu-latest"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"]
    assert matrix["include"] == [{"os": "macos-latest", "python": "3.12"}]
    steps = [step.get("run", "") for step in job["steps"]]
    ours = re.findall(r"^make .*$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert ours and [step for step in steps if step.startswith("make")] == ours


def test_the_workflow_tests_the_lowest_versions_and_looks_up_vulnerabilities():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    commands = {
        name: [step["run"] for step in job["steps"] if "run" in step][-1]
        for name, job in workflow["jobs"].items()
    }
    assert commands["lowest"] == "make test-lowest"
    assert commands["audit"] == "make audit"
    makefile = (ROOT / "Makefile").read_text()
    assert "--resolution lowest-direct" in makefile and "pip-audit" in makefile


def test_every_dependency_has_a_lower_bound_to_test():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [x for wanted in project["optional-dependencies"].values() for x in wanted]
    for wanted in (*project["dependencies"], *extras):
        if not wanted.startswith("orac-rl["):
            assert re.search(r">=\d", wanted), wanted


def test_an_extra_has_every_module_that_its_error_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = " ".join(project["optional-dependencies"]["onnx-encoder"])
    for module in ("orac-rl[onnx]", "jax2onnx", "onnxruntime"):
        assert module in wanted


@pytest.mark.slow
def test_the_registry_would_accept_the_distributions(distributions):
    files = sorted(distributions.iterdir())
    assert [file.name.partition("-")[2] for file in files] == [
        f"{orac.__version__}-py3-none-any.whl",
        f"{orac.__version__}.tar.gz",
    ]
    printed = run(sys.executable, "-m", "twine", "check", "--strict", *files)
    assert printed.count("PASSED") == 2


@pytest.mark.slow
def test_a_source_distribution_installs_and_monitors_with_only_numpy(
    distributions, tmp_path
):
    sdist = next(distributions.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert any(name.endswith("/tests/test_wheel.py") for name in names)
    programs = make_venv(tmp_path / "venv", "numpy")
    run(programs / "pip", "install", "--quiet", "--no-deps", sdist)
    code = "import sys, orac; m = orac.Monitor(5, 0.05, 0.95, 24); m.update(4); "
    code += "print(m.status, orac.__version__, {'jax', 'gymnasium'} & {*sys.modules})"
    printed = run(programs / "python", "-c", code)
    assert printed == f"undecided {orac.__version__} set()\n"


@pytest.mark.slow
def test_a_wheel_has_its_data_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "orac/py.typed" in names and any(n.endswith("citylearn.npz") for n in names)
    assert not any(name.startswith("tests/") for name in names)


@pytest.mark.slow
def test_a_wheel_has_only_known_kinds_of_files_and_no_pickle(wheel):
    known = {
        ".py",
        ".md",
        ".json",
        ".npz",
        ".html",
        ".css",
        ".js",
        ".typed",
        ".yaml",
        ".LICENSE",
    }
    read = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".dist-info/" in name:
                continue
            assert PurePath(name).suffix in known, name
            if name.endswith(".py"):
                read += 1
                assert not unsafe_parts(archive.read(name).decode()), name
            elif name.endswith(".npz"):
                with np.load(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                ) as file:
                    assert all(file[array].dtype.kind in "fiubU" for array in file)
    assert read > 50


@pytest.mark.slow
def test_a_wheel_runs_in_an_empty_virtual_environment(bare_venv, tmp_path):
    assert float(run(bare_venv / "python", "-c", CODE)) >= 0
    program = bare_venv / "orac"
    assert "orac-iqn" in run(program, "agents")
    assert run(program, "--version") == f"orac {orac.__version__}\n"
    assert "complete -" in run(program, "--print-completion", "bash")
    assert 'pip install "orac-rl[plots]"' in run(program, "doctor")
    small = ["--set=agent.hidden_sizes=[8, 8]", "--set=training.buffer_size=1000"]
    printed = run(
        program,
        "train",
        "--total-steps=400",
        f"--out={tmp_path / 'runs'}",
        "--quiet",
        "--set=training.learning_starts=300",
        "--set=evaluation.episodes=2",
        *small,
    )
    assert "Done:" in printed
