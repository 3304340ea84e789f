"""Runs and reports that the tests of this folder share. No test may change them."""

import json

import pytest

from helpers.synthetic_runs import ODD_LABEL, make_config, write_run
from orac.reports import report
from orac.reports.run_reader import read_results

PIXEL = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\r"
    b"IDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\x05\0\x01\xff\xa4\x81\x95\xde\0\0\0\0IEND\xaeB`\x82"
)


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Five seeds of ORAC and of a worse WCSAC, one of an agent whose name is markup."""
    root = tmp_path_factory.mktemp("runs")
    for algo, skill in (("orac", 1.0), ("wcsac", 0.5)):
        for seed in range(5):
            write_run(root, make_config(algo, seed), skill=skill)
    odd = [f"algo={json.dumps(ODD_LABEL)}"]
    write_run(root, make_config("sac-lag", 0, changes=odd), skill=1.5)
    (root / "maze.png").write_bytes(PIXEL)
    (root / "not-a-picture.png").write_bytes(b"text")
    return root


@pytest.fixture(scope="session")
def results(study):
    return read_results([study])


@pytest.fixture(scope="session")
def groups(results):
    """Groups by label."""
    return {group.label: group for group in results.groups}


@pytest.fixture(scope="session")
def html_report(study):
    return report.render([study])


@pytest.fixture(scope="session")
def markdown_report(study):
    return report.render([study], "markdown")
