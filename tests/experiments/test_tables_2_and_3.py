"""Tests of Figure 2: its panels and its bands."""

import numpy as np
import pytest

from helpers.study_examples import write_synthetic_runs
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
