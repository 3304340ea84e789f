"""Tests that the results section of the README is the one generated from `results/`."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location(
    "readme_results", ROOT / "tools" / "readme_results.py"
)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


def test_the_readme_is_up_to_date_with_the_results():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert tool.updated(readme, ROOT / "results") == readme, tool.__doc__


def test_the_limit_is_included_and_other_results_are_linked(tmp_path):
    for name in ("limit", "ablation-ensemble"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.md").write_text(f"## About {name}\n\n| a |\n| - |\n")
    (tmp_path / "limit" / "runs.csv").write_text("seed\n")
    (tmp_path / "ablation-ensemble" / "README.md").write_text(
        "# Many critics\n\nFew.\n"
    )
    text = tool.updated(f"# X\n{tool.BEGIN}\nold\n{tool.END}\ntail\n", tmp_path)
    assert text == (
        f"# X\n{tool.BEGIN}\n### About limit\n\n| a |\n| - |\n\n"
        "[runs](results/limit/runs.csv)\n\n"
        "Other results: [Many critics](results/ablation-ensemble/README.md).\n"
        f"{tool.END}\ntail\n"
    )


def test_without_results_the_section_says_how_to_record_some(tmp_path):
    assert "--record results/limit" in tool.section(tmp_path)


def test_a_readme_without_markers_raises_an_error(tmp_path):
    with pytest.raises(ValueError, match="must have the lines <!-- results:begin"):
        tool.updated("# no markers", tmp_path)
