"""Tests of the data file: its size, its notice, and the tool that extracted it."""

import importlib.util
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from orac.envs.citylearn.data import load_arrays, load_month

DATA = files("orac.envs.citylearn") / "data_files"
TOOL = Path(__file__).parents[3] / "tools" / "extract_citylearn.py"


def load_tool():
    spec = importlib.util.spec_from_file_location("extract_citylearn", TOOL)
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_data_file_is_small_and_contains_no_objects():
    path = Path(str(DATA / "citylearn.npz"))
    assert path.stat().st_size < 2_000_000
    assert all(values.dtype != object for values in load_arrays().values())


def test_notice_names_source_hash_and_licence():
    notice = (DATA / "citylearn.LICENSE").read_text()
    assert str(load_arrays()["wheel_sha256"]) in notice
    assert load_tool().WHEEL_SHA256 in notice
    for text in ("CityLearn 2.1.2", "MIT License", "Copyright (c) 2020 Jose Ramon"):
        assert text in notice


def test_month_has_720_hours_of_plausible_numbers():
    month = load_month((1, 2, 3))
    assert {rows.shape for rows in month} == {(720, 3)}
    assert {rows.dtype for rows in month} == {np.dtype(np.float32)}
    assert 18 < month.set_point.min() < month.set_point.max() < 28
    assert 1 < month.efficiency.min() < month.efficiency.max() <= 20
    assert month.solar.min() == 0.0 < month.solar.max() < 2.4


def test_extracting_from_another_wheel_raises_an_error(tmp_path):
    wheel = tmp_path / "CityLearn-2.1.2-py3-none-any.whl"
    wheel.write_bytes(b"not the wheel")
    with pytest.raises(ValueError, match=r"expected the CityLearn 2\.1\.2 wheel with"):
        load_tool().checked_wheel(wheel)


@pytest.mark.slow
def test_extracting_again_gives_the_same_numbers():
    installed = importlib.util.find_spec("citylearn")
    if installed is None or importlib.util.find_spec("torch") is None:
        pytest.skip("run `make setup-citylearn`")
    again = load_tool().extract(Path(str(installed.origin)).parent)
    shipped = load_arrays()
    assert list(again) == list(shipped)
    for name, values in again.items():
        np.testing.assert_array_equal(values, shipped[name], err_msg=name)
