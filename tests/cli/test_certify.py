"""Tests of `orac certify`, and of what a run delivers."""

import json
import shutil
from argparse import Namespace
from dataclasses import dataclass, replace

import numpy as np
import pytest

import orac
from helpers.command_examples import ENV, train_arguments
from orac.api import Agent
from orac.api.agent import check_own_task
from orac.cli.main import main
from orac.cli.train import finish
from orac.envs.maze.env import GuardedMaze
from orac.evaluation.certification import Certification, Look
from orac.evaluation.episodes import Episodes
from orac.runs.directory import certificate_problem, valid_certificate
from orac.training import delivery


@pytest.fixture
def run(steered_run, tmp_path):
    """A copy of the run, so that certificates do not reach other tests."""
    return shutil.copytree(steered_run, tmp_path / "run")


def with_limit(run, limit):
    """Change the limit in a run's config, which networks do not depend on."""
    file = run / "config.yaml"
    text = file.read_text()
    assert text.count("limit: 5.0") == 1
    file.write_text(text.replace("limit: 5.0", f"limit: {limit}"))
    return run


def test_a_certified_run_has_exit_code_0_and_a_certificate(run, capsys):
    # No episode of the maze can cost 1000, so every policy is within this limit.
    assert main(["certify", str(with_limit(run, 1000.0))]) == 0
    printed = capsys.readouterr().out
    assert "\nCertified: with 95 % confidence the CVaR of episode cost at" in printed
    assert f"Written: {run / 'certificate.json'}" in printed
    record = json.loads((run / "certificate.json").read_text())
    assert record["certified"] and record["seed"] == 0 and record["step"] % 160 == 0
    (look,) = record["looks"]
    assert look["episodes"] == 1200 and look["bounds"][0]["limit"] == 1000
    assert look["bounds"][0]["confidence"] == pytest.approx(1 - 0.05 / 3)


def test_an_earlier_certificate_is_named_and_stays_if_the_next_one_is_stopped(
    run, capsys, monkeypatch
):
    assert main(["certify", str(with_limit(run, 1000.0))]) == 0
    assert "certificate.json already" not in capsys.readouterr().out
    file = run / "certificate.json"
    before = file.read_bytes()

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("orac.api.agent.certify_candidates", stop)
    assert main(["certify", str(run)]) == 130
    printed = capsys.readouterr()
    assert printed.out.startswith(
        f"{file} already certifies a policy of this run. With the same"
    )
    assert printed.err.endswith(f" nothing was written. {file} has not changed.\n")
    assert file.read_bytes() == before


def test_a_run_that_is_not_certified_has_exit_code_1(run, capsys):
    # Even a policy that never pays would need about 20 * 24 / 0.001 * 3 episodes.
    assert main(["certify", str(with_limit(run, 0.001)), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert not record["certified"] and not record["looks"]
    assert record["sentence"].startswith("not certified: ")
    assert json.loads((run / "certificate.json").read_text()) == record


def test_the_same_command_plays_the_same_episodes(run, capsys):
    def certify():
        main(["certify", str(run), "--json", "--looks=1", "--episodes-max=900"])
        return json.loads(capsys.readouterr().out)

    assert certify() == certify()


def test_the_episodes_of_a_certificate_are_those_of_no_evaluation(run):
    agent = orac.load(with_limit(run, 1000.0))
    played = []
    evaluate = agent.runner.evaluate

    def record(policy, episodes, deterministic, seed=None, sample=0):
        result = evaluate(policy, episodes, deterministic, seed, sample)
        played.append(result.metrics["guard_present"][:200].tolist())
        return result

    agent.runner.evaluate = record
    agent.certify()
    agent.evaluate(1000)
    agent.evaluate(1000, seed=agent.config.seed)
    validation, look, own, of_seed = played[0], *played[-3:]
    kinds = [validation, look, own, of_seed]
    assert all(a != b for i, a in enumerate(kinds) for b in kinds[:i])


def test_certify_in_python_writes_what_the_command_writes(run, capsys):
    main(["certify", str(run), "--json", "--episodes-max=900"])
    expected = json.loads(capsys.readouterr().out)
    file = run / "certificate.json"
    file.unlink()
    orac.load(run).certify(episodes_max=900)
    assert not file.exists(), "an agent that was only loaded does not own the run"
    agent = orac.resume(run, progress_bar=False)
    agent.certify(episodes_max=900)
    assert json.loads(file.read_text()) == expected
    file.unlink()
    with pytest.warns(orac.api.NotRecordedWarning):
        agent.learn(more_steps=160, progress_bar=False)
    agent.certify(episodes_max=900)
    assert not file.exists(), "the run has no checkpoint of this step"


def test_a_certificate_does_not_count_for_steps_that_were_trained_again(run):
    assert main(["certify", str(with_limit(run, 1000.0))]) == 0
    certificate = (run / "certificate.json").read_text()
    assert valid_certificate(run)["certified"]
    assert orac.load(run)._certified is not None
    newest = sorted((run / "checkpoints").glob("*.arrays"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    messages = []
    orac.resume(run, progress_bar=False, log=messages.append)
    assert any("certificate.json was deleted" in text for text in messages)
    # The digest alone is enough: an old certificate is put back, as from a backup.
    record = {**json.loads(certificate), "state_digest": "0" * 64}
    (run / "certificate.json").write_text(json.dumps(record))
    assert "were trained again" in certificate_problem(run)
    with pytest.warns(UserWarning, match="were trained again"):
        assert orac.load(run)._certified is None


def test_the_certified_policy_is_the_delivered_one_from_then_on(
    run, tmp_path, monkeypatch
):
    agent = orac.load(run)
    candidates = agent.runner.state.candidates
    (best,) = delivery.ranked(candidates)[:1]
    other = next(i for i in range(delivery.MAX_CANDIDATES) if i != best)
    candidates.episodes[other], candidates.steps[other] = 10, 123
    candidates.reward[other] = candidates.reward[best] - 1

    def choose_second(offered, *_, **__):
        (place,) = [i for i, one in enumerate(offered) if one.step == 123]
        look = Look(place, 1, 10, 0.0, ())
        return Certification(0.95, 3, len(offered), 10, (look,), offered[place])

    monkeypatch.setattr(orac.api.agent, "certify_candidates", choose_second)
    assert agent.best.step != 123
    assert agent.certify().certified and agent.best.step == 123
    agent.save(tmp_path / "agent.zip")
    assert orac.load(tmp_path / "agent.zip").best.step == 123


def test_a_run_without_candidates_certifies_its_last_policy(trained_run, capsys):
    agent = orac.load(trained_run)
    assert agent.best is None
    result = agent.certify(episodes_max=900)
    assert result.policy.step == 800 and result.candidates == 1
    assert repr(result) == f"<Certification: {result.sentence()}>"


def test_a_saved_agent_is_certified_beside_its_file(run, tmp_path, capsys):
    orac.load(with_limit(run, 1000.0)).save(tmp_path / "agent.zip")
    assert main(["certify", str(tmp_path / "agent.zip")]) == 0
    assert (tmp_path / "agent.zip.certificate.json").exists()


def test_evaluate_uses_the_delivered_policy_or_the_last(steered_run, tmp_path, capsys):
    def evaluate(*options):
        out = tmp_path / str(len([*tmp_path.iterdir()]))
        arguments = [str(steered_run), "--episodes=20", f"--out={out}", *options]
        assert main(["evaluate", *arguments]) == 0
        meta = next(out.rglob("meta.json"))
        return json.loads(meta.read_text())["evaluated"]

    best, last = evaluate(), evaluate("--checkpoint=last")
    delivered = json.loads((steered_run / "delivered.json").read_text())
    assert best["checkpoint"] == "best" and best["policy_step"] == delivered["step"]
    assert last["checkpoint"] == "last" and last["policy_step"] == 1600
    assert evaluate("--checkpoint=best") == best


def test_a_run_says_which_policy_it_delivers_and_why(steered_run, trained_run):
    record = json.loads((steered_run / "delivered.json").read_text())
    best = orac.load(steered_run).best
    assert record["checkpoint"] == "best" and record["step"] == best.step
    assert record["risk"]["cost"] == best.risk[0] and record["limit"] == {"cost": 5.0}
    assert repr(best) == (
        f"<policy of step {best.step:,}: reward {best.reward:.4g}, risk {best.risk[0]:.4g}, "
        f"within the limits, measured on {best.episodes:,} episodes>"
    )
    assert record["episodes"] == best.episodes and record["within_limits"] is True
    assert "highest reward" in record["why"]
    last = json.loads((trained_run / "delivered.json").read_text())
    assert last["checkpoint"] == "last" and last["step"] == 800
    assert "follows the critics" in last["why"] and last["episodes"] == 10


def test_the_end_of_a_run_names_the_policy_and_the_command_that_certifies(
    steered_run, capsys
):
    assert main(["resume", str(steered_run), "--quiet"]) == 0
    printed = capsys.readouterr().out
    best = orac.load(steered_run).best
    assert (
        f"Delivered: the best policy, from step {best.step:,}, with reward "
        f"{best.reward:.4g} and a CVaR of {best.risk[0]:.4g} at tail 0.05 (limit 5), measured "
        f"on {best.episodes:,} episodes.\n"
    ) in printed
    assert printed.endswith(f"Certify it with: orac certify {steered_run}\n")


def test_a_declared_bound_is_part_of_the_next_commands(trained_run, capsys):
    agent = orac.load(trained_run)
    finish(agent, trained_run, Namespace(cost_bound=[200.0], quiet=True))
    printed = capsys.readouterr().out
    assert printed.endswith(f"orac certify {trained_run} --cost-bound 200\n")


def test_the_next_commands_name_the_module_that_the_user_named(trained_run, capsys):
    agent = orac.load(trained_run)
    agent.env_id = "my_envs:Tank-v0"
    finish(agent, trained_run, Namespace(cost_bound=None, quiet=True))
    printed = capsys.readouterr().out
    for command in ("evaluate", "certify"):
        assert f"orac {command} {trained_run} --env-id my_envs:Tank-v0" in printed
    agent.run_path = trained_run
    continued = f"orac resume {trained_run} --env-id my_envs:Tank-v0"
    assert continued in agent._how_to_continue(trained_run)


def test_a_cost_function_that_was_not_compared_is_noted_in_the_certificate(
    run, capsys, monkeypatch
):
    agent = orac.load(run)
    agent._not_compared = "the code of the cost function cannot be compared."
    monkeypatch.setattr(orac.cli.evaluate, "load_from_options", lambda options: agent)
    main(["certify", str(run)])
    assert "\nNote: the code of the cost" in capsys.readouterr().out


def test_the_head_of_a_run_says_what_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Agent, "_train", lambda agent, logger, *_: logger.close())
    arguments = ["train", "--preset=fast", f"--env-id={ENV}", f"--out={tmp_path}"]
    assert main([*arguments, *train_arguments(800, 400)]) == 130
    assert (
        "  cost: CVaR of at most 5 per episode at tail 0.05, measured over the last 200 "
        "episodes of the deployed policy; the multiplier aims at 4.75\n"
    ) in capsys.readouterr().out


@dataclass(frozen=True)
class Meadow(GuardedMaze):
    """A maze of another name, with the same spaces."""

    @property
    def spec(self):
        return replace(super().spec, name="Meadow")


def test_a_run_is_certified_only_in_its_own_environment(run, capsys, monkeypatch):
    agent = orac.load(run, Meadow())
    monkeypatch.setattr(orac.cli.evaluate, "load_from_options", lambda options: agent)
    assert main(["certify", str(run)]) == 1
    assert (
        "a run must be certified with its own environment, orac/GuardedMaze-v0, got Meadow. To "
        f"bound the risk with the new one, use: orac evaluate {run} --env-id Meadow "
    ) in capsys.readouterr().err
    assert not (run / "certificate.json").exists()


def test_an_evaluation_in_another_environment_is_saved_under_its_name(
    run, tmp_path, monkeypatch
):
    agent = orac.load(run, Meadow())
    monkeypatch.setattr(orac.cli.evaluate, "load_from_options", lambda options: agent)
    options = ["--episodes=2", f"--out={tmp_path / 'out'}"]
    assert main(["evaluate", str(run), *options]) == 0
    (path,) = (tmp_path / "out").rglob("config.yaml")
    assert "id: Meadow" in path.read_text() and path.parts[-5] == "Meadow"


def test_a_run_is_certified_only_with_its_own_cost_function(run):
    agent = orac.load(run)
    agent._new_cost_fn = "mine:cheap"
    says = "its own cost function, got mine:cheap. .* --cost-fn mine:cheap --episodes"
    with pytest.raises(ValueError, match=says):
        check_own_task(agent, run)


def test_a_certificate_ends_when_the_run_is_trained_further(run, capsys):
    assert main(["certify", str(with_limit(run, 1000.0))]) == 0
    step = orac.load(run).best.step
    record = json.loads((run / "certificate.json").read_text())
    assert (step, 1600) == (record["step"], record["trained_steps"])
    earlier = json.dumps({**record, "trained_steps": 800})
    (run / "certificate.json").write_text(earlier)
    with pytest.warns(
        UserWarning, match="when the run had 800 steps, and now it has 16"
    ):
        assert orac.load(run)._certified is None


def test_a_bound_that_an_episode_of_the_run_exceeded_certifies_nothing(run):
    log = run / "episodes.csv"
    rows = log.read_text().splitlines()
    cells = rows[-1].split(",")
    cells[rows[0].split(",").index("cost")] = "99.0"
    log.write_text("\n".join([*rows, ",".join(cells)]) + "\n")
    with pytest.raises(ValueError, match=r"one episode cost 99 \(.*episodes\.csv\)"):
        orac.load(run).certify()


def test_an_episode_above_the_bound_is_found_whatever_else_is_missing(run):
    log = run / "episodes.csv"
    header, *rows = log.read_text().splitlines()
    column = header.split(",").index("cost")
    first, last = (rows[i].split(",") for i in (0, -1))
    first[column], last[column] = "", "99.0"
    log.write_text("\n".join([header, ",".join(first), ",".join(last)]) + "\n")
    agent = orac.load(run)
    episodes = agent.evaluate(2).episodes
    for certify in (agent.certify, lambda: agent.certify(episodes)):
        with pytest.raises(
            ValueError, match=r"one episode cost 99 \(.*episodes\.csv\)"
        ):
            certify()


def test_episodes_with_another_number_of_costs_are_not_certified(run):
    episodes = Episodes(np.ones(3), np.ones((3, 2)), np.ones(3, int))
    with pytest.raises(ValueError, match=r"one column for each cost .*\(3, 2\)"):
        orac.load(run).certify(episodes)


def test_measurements_with_another_cost_function_are_forgotten(run):
    agent = orac.load(run)
    assert agent.best is not None
    agent._new_cost_fn = "mine:cheap"
    (sentence,) = agent._restore_replay()
    assert sentence.startswith("the agent was trained with another cost function, so")
    assert agent.best is None
