"""Tests of `orac doctor`, `orac agents` and `orac envs`."""

from helpers.command_examples import ENV
from orac.cli.main import main
from orac.config import presets


def test_doctor_prints_how_to_install_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("orac.cli.doctor.find_spec", lambda name: None)
    monkeypatch.setattr("orac.cli.doctor.missing", lambda: ("mujoco", "glfw"))
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert 'pip install "orac-rl[plots]"' in printed
    assert 'pip install "orac-rl[playground]"' in printed
    assert "safety       missing (mujoco, glfw): Safety-Gymnasium" in printed
    assert "    pip install --no-deps safety-gymnasium==1.0.0\n" in printed


def test_agents_and_envs_are_listed(capsys):
    assert main(["agents"]) == 0
    assert main(["envs"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in presets.ALGORITHMS)
    assert ENV in printed and "orac/SafetyPointGoal1-v0" in printed
    assert "brax:halfcheetah" in printed
