"""Tests of `orac evaluate` with a trained run or a hand-coded rule.

`tests/runs/test_saved_evaluations.py` tests what `--out` writes.
"""

import json

from helpers.command_examples import ENV
from orac.cli.main import main
from orac.reports.run_reader import read_columns


def test_evaluate_prints_risk_and_a_certificate(trained_run, capsys):
    options = ["--episodes=40", "--certify", "--tails", "0.5"]
    assert main(["evaluate", str(trained_run), *options]) == 0
    printed = capsys.readouterr().out
    for name in (
        "reward/mean",
        "cost/cvar_0.05",
        "cost/cvar_0.5",
        "cost/violation_rate",
    ):
        assert name in printed
    assert "with 95 % confidence the CVaR of episode cost at tail 0.05" in printed
    assert "with 95 % confidence an episode's cost exceeds the limit with" in printed


def test_json_is_all_that_is_printed_even_with_a_video(trained_run, tmp_path, capsys):
    video = tmp_path / "new" / "episode.gif"
    options = ["--episodes=40", "--json", f"--video={video}"]
    assert main(["evaluate", str(trained_run), *options]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 40
    assert video.read_bytes()[:3] == b"GIF"


def test_a_seed_selects_other_episodes_of_a_run(trained_run, tmp_path, capsys):
    def guards(*options):
        out = tmp_path / str(len([*tmp_path.iterdir()]))
        arguments = [str(trained_run), "--episodes=40", f"--out={out}", *options]
        assert main(["evaluate", *arguments]) == 0
        (path,) = out.rglob("evaluations.csv")
        return read_columns(path)["guard_present"].tolist()

    own, other = guards(), guards("--seed=1")
    assert own == guards() and other == guards("--seeds", "1")
    assert own != other
    path = next((tmp_path / "1").rglob("meta.json"))
    assert json.loads(path.read_text())["evaluated"]["episodes_of_seed"] == 1


def test_a_rule_is_evaluated_like_an_agent(capsys):
    options = ["--rule=long_path", f"--env-id={ENV}", "--episodes=200"]
    assert main(["evaluate", *options, "--certify", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cost/cvar_0.05"] == 4 and printed["cost/violation_rate"] == 0
    risk, violations = printed["certificates"]
    assert "not certified" in risk, "200 episodes are too few"
    # 1 - 0.05 ** (1 / 200) is 0.01487.
    assert violations == (
        "with 95 % confidence an episode's cost exceeds the limit with probability at most "
        "0.0149 (limit 5, exceeded by 0 of 200 episodes)"
    )


def test_a_file_that_is_not_a_saved_agent_is_an_error(tmp_path, capsys):
    file = tmp_path / "agent.zip"
    file.write_bytes(b"not a zip")
    assert main(["evaluate", str(file)]) == 1
    assert "written by Agent.save" in capsys.readouterr().err
