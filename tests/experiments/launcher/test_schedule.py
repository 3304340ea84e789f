"""Many runs: several at a time, each once, and all of them whatever happens to one."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from helpers.synthetic_runs import make_config
from orac.experiments.launcher import processes, schedule
from orac.experiments.launcher.processes import Processes
from orac.experiments.launcher.schedule import PlannedRun, check_plan, run_all
from orac.experiments.launcher.worker import STOPPED
from orac.experiments.run_study import UNFINISHED, conclude

FAKE = (sys.executable, str(Path(__file__).parents[2] / "helpers/fake_worker.py"))


def plan(out, seeds, steps=400):
    return [
        PlannedRun("fake", make_config("orac", seed, steps), "default", out)
        for seed in seeds
    ]


def run(runs, jobs=2, **options):
    told = []
    backend = Processes(jobs, program=FAKE)
    outcomes = run_all(runs, backend, say=told.append, **options)
    return outcomes, told


def journal(out):
    return [line.split() for line in (out / "journal").read_text().splitlines()]


def statuses(outcomes):
    return [outcome.status for outcome in outcomes]


def test_all_runs_are_made_and_never_more_than_allowed_at_a_time(tmp_path):
    outcomes, told = run(plan(tmp_path, range(5)))
    assert statuses(outcomes) == ["finished"] * 5
    at_a_time, most = 0, 0
    for sign, *_ in journal(tmp_path):
        at_a_time += 1 if sign == "+" else -1
        most = max(most, at_a_time)
    assert most <= 2
    assert "started   fake, seed 3" in told
    assert any(line.startswith("finished  fake, seed 4, 0:00:") for line in told)


def test_finished_runs_are_skipped(tmp_path):
    run(plan(tmp_path, range(2)))
    outcomes, told = run(plan(tmp_path, range(3)))
    assert statuses(outcomes) == ["finished"] * 3
    assert told[0] == "2 of 3 runs are finished already."
    assert sorted(seed for sign, seed, _ in journal(tmp_path) if sign == "+") == [
        *"012"
    ]


def test_a_failing_run_is_told_and_does_not_stop_the_others(tmp_path):
    outcomes, _ = run(plan(tmp_path, (6, 7, 9)))
    assert statuses(outcomes) == ["finished", "failed", "finished"]
    told = []
    assert conclude(outcomes, told.append) == 1
    (line,) = told
    assert line.startswith("failed: fake, seed 7: the seventh seed always fails (")
    assert line.endswith("seed-007/log.txt)")


def test_a_killed_worker_is_told_and_its_run_goes_on_with_the_same_call(tmp_path):
    outcomes, _ = run(plan(tmp_path, (8,)))
    assert statuses(outcomes) == ["failed"]
    assert "killed by signal 9" in outcomes[0].error
    outcomes, told = run(plan(tmp_path, (8,)))
    assert statuses(outcomes) == ["finished"]
    assert [*journal(tmp_path)[1]] == ["+", "8", "200"]
    assert told[0].startswith("started   fake, seed 8 at step ")


def test_an_interrupt_lets_workers_save_and_the_same_call_goes_on(tmp_path):
    runs = plan(tmp_path, range(3), steps=20_000)

    def interrupt():
        while len(journal_lines()) < 2:
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    def journal_lines():
        return journal(tmp_path) if (tmp_path / "journal").exists() else []

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcomes, told = run(runs)
    thread.join()
    assert statuses(outcomes) == ["stopped"] * 3
    assert "Stopping (asked to): every worker saves first." in told
    assert conclude(outcomes, told.append) == UNFINISHED
    assert told[-1].startswith("3 of 3 runs are not finished, all saved")
    reached = {seed: step for sign, seed, step in journal(tmp_path) if sign == "-"}
    assert set(reached) == {"0", "1"} and all(int(s) > 0 for s in reached.values())
    # Close to the end, so that going on takes a moment only.
    (runs[0].path / "saved").write_text("19900")
    outcomes, _ = run(runs[:1])
    assert statuses(outcomes) == ["finished"]
    assert journal(tmp_path)[-2] == ["+", "0", "19900"]


def test_the_budget_stops_a_study_that_would_take_longer(tmp_path):
    outcomes, told = run(plan(tmp_path, range(3), 20_000), budget_seconds=0.5)
    assert statuses(outcomes) == ["stopped"] * 3
    assert "Stopping (budget used): every worker saves first." in told


def test_how_far_everything_is_is_told_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "SUMMARY_SECONDS", 0.3)
    _, told = run(plan(tmp_path, range(2), 2_000))
    (line, *_) = [line for line in told if "steps/s" in line]
    assert line.startswith("0 finished, 0 failed, running: fake, seed 0 at ")


def test_a_place_with_a_run_of_other_settings_is_refused(tmp_path):
    run(plan(tmp_path, (0,)))
    with pytest.raises(ValueError, match=r"total_steps 400, and 500 is asked for\. R"):
        check_plan(plan(tmp_path, (0,), steps=500))


def test_other_settings_of_another_seed_are_refused_before_anything_runs(tmp_path):
    run(plan(tmp_path, (0,)))
    with pytest.raises(ValueError, match=r"seed-000 holds a run with .* 500 is asked"):
        check_plan(plan(tmp_path, (1,), steps=500))
    check_plan(plan(tmp_path, (1,)))


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_worker_that_is_stopped_as_it_starts_stops(tmp_path, seconds):
    (one,) = plan(tmp_path, (0,), steps=1_000_000)
    child = processes.Child(one.path, one.task(1, ()), processes.WORKER)
    time.sleep(seconds)
    child.stop()
    assert child.process.wait(timeout=120) == STOPPED
    assert child.result() == ("stopped", "")


def test_a_worker_that_is_killed_has_failed(tmp_path):
    (one,) = plan(tmp_path, (0,))
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    child = processes.Child(one.path, one.task(1, ()), (sys.executable, "-c", suicide))
    child.process.wait(timeout=30)
    status, error = child.result()
    assert status == "failed" and "signal 9" in error


def test_two_runs_in_one_place_are_refused(tmp_path):
    (one,) = plan(tmp_path, (0,))
    other = PlannedRun("other", one.config, "default", tmp_path)
    with pytest.raises(ValueError, match=r"fake, seed 0 and other, seed 0 both go to"):
        check_plan([one, other])


def test_a_resumed_run_keeps_the_threads_it_began_with(tmp_path):
    (one,) = plan(tmp_path, (0,))
    assert one.task(2, ()).threads == 2
    one.path.mkdir(parents=True)
    (one.path / "meta.json").write_text('{"threads": 1}')
    assert one.task(2, ()).threads == 1


def test_without_a_number_of_jobs_processors_are_shared_out(monkeypatch):
    monkeypatch.setattr(processes, "count_threads", lambda: 8)
    assert Processes()._jobs == 8
    assert Processes(threads=3)._jobs == 2
    assert Processes(threads=16)._jobs == 1
