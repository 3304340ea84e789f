"""Tests of Figure 2 (its panels and its bands) and of Tables 2 and 3 in the fast sizes."""

import numpy as np
import pytest

from helpers.study_examples import write_synthetic_runs
from orac.config import overrides
from orac.config.presets import preset
from orac.experiments.records import collect
from orac.experiments.run_study import STUDIES
from orac.experiments.study import with_settings
from orac.reports.report_metrics import average_curves, evaluation_curve


def test_band_is_the_interval_or_half_a_standard_deviation(tmp_path):
    study = with_settings(STUDIES["figure2"], 10_000)
    write_synthetic_runs(study, tmp_path, 4, evaluations=2, episodes=8)
    results = collect(study, tmp_path)
    curves = [evaluation_curve(run, "reward") for run in results[0].runs]
    values = np.stack([rewards for _, rewards in curves])
    half_std = values.mean(axis=0) + values.std(axis=0) / 2
    interval = average_curves(curves, results[0].group, "reward").high
    for band, top in (("interval", interval), ("half-std", half_std)):
        figure = study.make_figure(results, band)
        axes = figure.axes[0]
        assert axes.get_title("left") == "PointGoal1, tail 0.5: reward"
        drawn = axes.collections[0].get_paths()[0].vertices[:, 1].max()
        assert drawn == pytest.approx(np.max(top))
    assert len(figure.axes) == 12, (
        "reward, cost and CVaR in two environments, two tails"
    )


@pytest.mark.parametrize(
    ("name", "kappa"), [("table2-fast", 1.25), ("table3-fast", 50)]
)
def test_fast_studies_differ_from_the_fast_preset_in_the_constraint_only(name, kappa):
    study = with_settings(STUDIES[name])
    for case in study.cases:
        config = case.config
        fast = preset(config.algo, config.env.id, "fast")
        changed = {
            field.removeprefix("agent.") for field in overrides.difference(config, fast)
        } - {"constraints.0.tail"}
        measured = "by measured risk" in case.label
        assert measured == config.agent.follows_episodes
        if measured:
            assert changed == {"training.total_steps"} and config.algo == "orac"
        else:
            # The critics are in other units, in which kappa must be the same cost.
            assert config.agent.kappa == pytest.approx(
                kappa * fast.agent.kappa, rel=0.01
            )
            assert "multiplier.follows" in changed and not config.agent.penalty_tail
    agents = {case.config.algo for case in study.cases}
    assert agents == {"sac-lag", "wcsac", "orac"}


def test_fast_tables_show_the_papers_numbers(tmp_path):
    study = with_settings(STUDIES["table3-fast"], 10_000)
    write_synthetic_runs(study, tmp_path, 2, evaluations=2, episodes=8)
    (table,) = study.make_tables(collect(study, tmp_path))
    rows = {row[0]: row for row in table.rows}
    paper = "-1299"
    assert any(paper in cell for cell in rows["ORAC-0.05"])
    assert any(paper in cell for cell in rows["ORAC-0.05 by measured risk"])
    assert not any(paper in cell for cell in rows["WCSAC-0.05"])
