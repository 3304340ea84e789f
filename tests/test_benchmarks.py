"""Tests of the parts of `make bench` that do not measure time."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def test_the_floor_of_sac_lagrangian_has_every_product_once():
    from floor import products_of
    from workloads import learning

    config, problem, batch = learning("maze scalar")
    products = products_of(problem, config, batch)
    assert (batch, config.num_cost_critics, config.hidden_sizes) == (256, 1, (64, 64))
    first, second, last = 4 * 64, 64 * 64, 64 * 1
    # Per critic: targets; training without the gradient of its input; forward and gradient
    # for the actor. The gradient of one output is an outer product, which is left out.
    critic = (1 + 2 + 2) * first + (1 + 3 + 2) * second + (1 + 2 + 1) * last
    actor = (1 + 2) * 2 * 64 + (1 + 3) * 64 * 64 + (1 + 3) * 64 * 4
    assert sum(product.flops for product in products) == 512 * (3 * critic + actor)


def test_a_recorded_table_says_what_was_reached(tmp_path):
    from bench import END_OF_TABLE, Bench, Measured, record

    bench = Bench(0, 5, tmp_path / "python", products=False)
    bench.measured["update a"] = Measured(3.0, 3.1, 100.0, {})
    bench.measured["floor a"] = Measured(2.0, 2.1, 100.0, {})
    bench.errors["sbx"] = "ModuleNotFoundError: No module named 'sbx'"
    ratio = bench.ratio("update a", "floor a")
    bench.figure("a", ratio, "", "<= 1.25", bench.note("update a", "floor a"))
    bench.figure("b", ratio, "", ">= 1.25")
    bench.figure("c", bench.ratio("sbx", "floor a"), "", "<= 1", bench.note("sbx"))
    versions = {"python": "3", "jax": "1"}
    machine = {"commit": "abc", "versions": versions, "cpu_count": 2}
    circumstances = {"machine": machine, "load": 0.5, "others": ["python 93%"]}
    circumstances |= {"minutes": 9.0, "others_used": 1.25}
    (tmp_path / "README.md").write_text(
        f"old table\n{END_OF_TABLE}\n\nWhy b is slow.\n"
    )
    record(bench, tmp_path, circumstances)
    with open(tmp_path / "figures.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["reached"] for row in rows] == ["False", "True", ""]
    text = (tmp_path / "README.md").read_text()
    assert "| a | 1.5 | <= 1.25 | not reached | 3 ms, 2 ms |" in text
    assert "together used 1.25 processors" in text and "python 93%" in text
    assert "old table" not in text and text.endswith("\n\nWhy b is slow.\n")
    assert (
        json.loads((tmp_path / "measured.json").read_text())["errors"] == bench.errors
    )
    assert "No module named 'sbx'" in rows[2]["note"]


def test_an_unknown_section_is_an_error():
    command = [sys.executable, str(FOLDER / "bench.py"), "update"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "SECTION must be one of updates, acting, loops" in done.stderr
