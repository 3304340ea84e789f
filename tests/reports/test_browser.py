"""Tests of the report in a real browser."""

import json
import time
from types import SimpleNamespace

import pytest

from helpers.browser import CHROMIUM, open_page, take_picture
from helpers.synthetic_runs import make_config, write_checkpoint, write_run
from orac.reports import report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no chromium on this machine: install Debian's chromium package",
    ),
]
MARKUP = "</script><b>bold</b>"
STEPS = 500_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Write a report on ten runs of 500,000 steps, the size of runs of the maze."""
    root = tmp_path_factory.mktemp("runs")
    started = time.perf_counter()
    for algo in ("orac", MARKUP):
        for seed in range(5):
            config = make_config(
                "orac" if algo == "orac" else "wcsac",
                seed,
                STEPS,
                [f"algo={json.dumps(algo)}"],
            )
            path = write_run(
                root,
                config,
                evaluations=50,
                episodes=100,
                rows=500,
                training_episodes=40_000,
                skill=1.0 if algo == "orac" else 0.5,
            )
            write_checkpoint(path, config, STEPS)
    written, worked = time.perf_counter(), time.process_time()
    page = report.write([root], root / "report.html")
    seconds, cpu = time.perf_counter() - written, time.process_time() - worked
    print(f"\nruns written in {written - started:.1f} s")
    return SimpleNamespace(page=page, seconds=seconds, cpu=cpu)


@pytest.fixture(scope="module")
def seen(large, tmp_path_factory):
    return open_page(large.page, tmp_path_factory.mktemp("browser"))


def test_report_on_ten_long_runs_is_small_and_quick(large):
    size = large.page.stat().st_size
    print(f"{size / 1e6:.1f} MB in {large.seconds:.1f} s, {large.cpu:.1f} s of work")
    assert size < 10_000_000
    # CPU time of all threads.
    assert large.cpu < 30
    # On a shared machine it may take several times as long.
    assert large.seconds < 120


def test_console_has_no_errors(seen):
    assert seen["errors"] == []


def test_page_makes_and_tries_no_requests(seen):
    assert seen["requests"] == []
    assert seen["refused"] == []


def test_every_chart_has_drawn_marks(seen):
    assert [chart["title"] for chart in seen["charts"]] == [
        "Measured risk of cost (CVaR at 0.05)",
        "Multiplier of cost",
        "Reward per episode",
        "Mean cost per episode",
        "Cost in the last evaluation, all seeds together",
        "Share of seeds with a reward above x (higher curves are better)",
        "Share of seeds with a CVaR of cost at tail 0.05 above x (lower curves are better)",
        "Reward while training",
        "Total cost paid while training",
        "Risk of cost in the critics' units",
    ]
    for chart in seen["charts"]:
        # Two groups have a mean and a band each; curves also have ten seeds.
        few = chart["title"].startswith(("Cost in", "Share of seeds"))
        least = 4 if few else 12
        assert chart["marks"] >= least, chart["title"]
    # Each of 50 evaluations is a point of each mean.
    assert seen["charts"][0]["marks"] >= 114
    assert seen["charts"][2]["marks"] >= 114


def test_hover_shows_value_interval_and_seeds(seen):
    reward, cost = seen["charts"][2]["hover"], seen["charts"][4]["hover"]
    assert "[" in reward and "5 seeds" in reward
    assert "of 500 episodes" in cost


def test_paths_of_the_policies_are_shown(seen):
    (width,) = seen["pictures"]
    assert width > 500


def test_label_with_markup_is_shown_as_text(seen):
    assert f"{MARKUP} (5 seeds)" in seen["charts"][0]["legend"]


@pytest.mark.parametrize("width", [320, 390, 800])
def test_page_fits_narrow_screens(large, tmp_path, width):
    narrow = open_page(large.page, tmp_path, width)
    content, screen = narrow["width"]
    assert screen == width
    assert content <= screen
    assert narrow["errors"] == []


def test_screenshot_shows_colours(large, tmp_path):
    from PIL import Image

    path = take_picture(large.page, tmp_path, tmp_path / "page.png", 1280, 1200)
    with Image.open(path) as picture:
        assert picture.size == (1280, 1200)
        # White, black, and the colours of at least two lines.
        assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 100
