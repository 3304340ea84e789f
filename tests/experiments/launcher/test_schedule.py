"""Tests of the loop that trains many runs, with a fake worker in place of the real one."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from helpers.synthetic_runs import make_config
from orac.experiments.launcher import processes, schedule
from orac.experiments.launcher.processes import Processes, WorkerProcess
from orac.experiments.launcher.schedule import PlannedRun, check_plan, run_all
from orac.experiments.launcher.worker import STOPPED
from orac.experiments.run_study import UNFINISHED, exit_code

FAKE = (sys.executable, str(Path(__file__).parents[2] / "helpers/fake_worker.py"))


def plan(out, seeds, steps=400):
    return [
        PlannedRun("fake", make_config("orac", seed, steps), "default", out)
        for seed in seeds
    ]


def run(runs, jobs=2, **options):
    lines = []
    backend = Processes(jobs, program=FAKE)
    outcomes = run_all(runs, backend, log=lines.append, **options)
    return outcomes, lines


def journal(out):
    return [line.split() for line in (out / "journal").read_text().splitlines()]


def statuses(outcomes):
    return [outcome.status for outcome in outcomes]


def test_all_runs_finish_and_never_more_than_two_run_at_a_time(tmp_path):
    outcomes, lines = run(plan(tmp_path, range(5)))
    assert statuses(outcomes) == ["finished"] * 5
    at_a_time, most = 0, 0
    for sign, *_ in journal(tmp_path):
        at_a_time += 1 if sign == "+" else -1
        most = max(most, at_a_time)
    assert most <= 2
    assert "started   fake, seed 3" in lines
    assert any(line.startswith("finished  fake, seed 4, 0:00:") for line in lines)


def test_finished_runs_are_skipped(tmp_path):
    run(plan(tmp_path, range(2)))
    outcomes, lines = run(plan(tmp_path, range(3)))
    assert statuses(outcomes) == ["finished"] * 3
    assert lines[0] == "2 of 3 runs are finished already."
    assert sorted(seed for sign, seed, _ in journal(tmp_path) if sign == "+") == [
        *"012"
    ]


def test_failing_run_is_reported_and_does_not_stop_the_others(tmp_path):
    outcomes, _ = run(plan(tmp_path, (6, 7, 9)))
    assert statuses(outcomes) == ["finished", "failed", "finished"]
    lines = []
    assert exit_code(outcomes, lines.append) == 1
    (line,) = lines
    assert line.startswith("failed: fake, seed 7: the seventh seed always fails (")
    assert line.endswith("seed-007/log.txt)")


def test_run_of_a_killed_worker_starts_once_more_where_it_was(tmp_path):
    outcomes, lines = run(plan(tmp_path, (8,)))
    assert statuses(outcomes) == ["finished"]
    assert [line.split()[0] for line in lines] == [
        *("started", "killed", "started", "finished")
    ]
    assert "ended by signal 9 (often: out of memory)" in lines[1]
    assert [*journal(tmp_path)[1]] == ["+", "8", "200"]


def test_run_whose_worker_is_killed_twice_is_told_apart_from_a_failed_one(tmp_path):
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    lines = []
    backend = Processes(1, program=(sys.executable, "-c", suicide))
    outcomes = run_all(plan(tmp_path, (0,)), backend, log=lines.append)
    assert statuses(outcomes) == ["killed"]
    assert sum(line.startswith("started") for line in lines) == 2
    assert exit_code(outcomes, lines.append) == 1
    assert lines[-1].startswith(
        "killed: fake, seed 0: its process was ended by signal 9"
    )


OUT_OF_MEMORY = """
import sys
from orac.experiments.launcher import worker
def train(order, parent_gone):
    raise {error}
worker.train_or_resume = train
sys.exit(worker.main())
"""


@pytest.mark.parametrize(
    "error", ["MemoryError('512 GB')", "RuntimeError('RESOURCE_EXHAUSTED: 512 GB')"]
)
def test_a_worker_without_memory_starts_once_more_as_a_killed_one(tmp_path, error):
    program = (sys.executable, "-c", OUT_OF_MEMORY.format(error=error))
    lines = []
    backend = Processes(1, program=program)
    outcomes = run_all(plan(tmp_path, (0,)), backend, log=lines.append)
    assert statuses(outcomes) == ["killed"]
    assert sum(line.startswith("started") for line in lines) == 2
    assert "its process was out of memory (" in lines[-1]
    (log,) = tmp_path.rglob("log.txt")
    assert log.read_text().count("There is not enough memory: ") == 2
    assert "Traceback" not in log.read_text()


def test_interrupt_lets_workers_save_and_the_same_call_continues(tmp_path):
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
    outcomes, lines = run(runs)
    thread.join()
    assert statuses(outcomes) == ["stopped"] * 3
    (line,) = [line for line in lines if line.startswith("Stopping (interrupted). ")]
    assert line.endswith("saves a checkpoint. Ctrl-C again stops them without saving.")
    assert exit_code(outcomes, lines.append) == UNFINISHED
    assert lines[-1].startswith(
        "3 of 3 runs are not finished. The steps of 2 of these are saved."
    )
    reached = {seed: step for sign, seed, step in journal(tmp_path) if sign == "-"}
    assert set(reached) == {"0", "1"} and all(int(s) > 0 for s in reached.values())
    # Close to the end, so that the rest takes only a moment.
    (runs[0].path / "saved").write_text("19900")
    outcomes, _ = run(runs[:1])
    assert statuses(outcomes) == ["finished"]
    assert journal(tmp_path)[-2] == ["+", "0", "19900"]


def test_time_budget_stops_runs_that_would_take_longer(tmp_path):
    outcomes, lines = run(plan(tmp_path, range(3), 20_000), budget_seconds=0.5)
    assert statuses(outcomes) == ["stopped"] * 3
    assert (
        "Stopping (time budget used up). Each worker first saves a checkpoint." in lines
    )


def test_progress_is_logged_regularly(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "PROGRESS_SECONDS", 0.3)
    _, lines = run(plan(tmp_path, range(2), 2_000))
    (line, *_) = [line for line in lines if "steps/s" in line]
    assert line.startswith("0 finished, 0 failed, running: fake, seed 0 at ")


def test_progress_counts_killed_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "PROGRESS_SECONDS", 0.0)
    first, second = plan(tmp_path, range(2))
    lines = []
    progress = schedule.ProgressLog([second], lines.append)
    progress.update([second], [schedule.Outcome(first, "killed")])
    assert lines == ["0 finished, 0 failed, 1 killed, running: fake, seed 1 at 0%"]


def test_directory_of_a_run_with_other_settings_raises(tmp_path):
    run(plan(tmp_path, (0,)))
    with pytest.raises(
        ValueError,
        match=r"seed-000 holds other settings than fake, seed 0 \(training.total_steps: "
        r"400 there, 500 here\), but runs in one folder must differ only in their seed\.",
    ) as caught:
        check_plan(plan(tmp_path, (0,), steps=500))
    (path,) = tmp_path.glob("**/seed-000")
    command = f"To train it further, type: orac resume {path} --total-steps 500"
    assert str(caught.value).endswith(command)
    with pytest.raises(ValueError, match=r"or move the existing run\.$"):
        check_plan(plan(tmp_path, (0,), steps=300))


def test_other_settings_than_those_of_another_seed_raise(tmp_path):
    run(plan(tmp_path, (0,)))
    with pytest.raises(
        ValueError, match=r"seed-000 holds .* than fake, seed 1 .* 400 there, 500 here"
    ):
        check_plan(plan(tmp_path, (1,), steps=500))
    check_plan(plan(tmp_path, (1,)))


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_worker_that_is_stopped_while_it_starts_stops(tmp_path, seconds):
    (one,) = plan(tmp_path, (0,), steps=1_000_000)
    worker = processes.WorkerProcess(
        one.path, one.to_order_json(1, ()), processes.WORKER
    )
    time.sleep(seconds)
    worker.stop()
    assert worker.process.wait(timeout=120) == STOPPED
    assert worker.result() == ("stopped", "")


def test_killed_worker_is_told_apart_from_a_failed_one(tmp_path):
    (one,) = plan(tmp_path, (0,))
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    worker = processes.WorkerProcess(
        one.path, one.to_order_json(1, ()), (sys.executable, "-c", suicide)
    )
    worker.process.wait(timeout=30)
    status, error = worker.result()
    assert status == "killed" and "signal 9" in error


def test_two_runs_in_one_directory_raise(tmp_path):
    (one,) = plan(tmp_path, (0,))
    other = PlannedRun("other", one.config, "default", tmp_path)
    with pytest.raises(ValueError, match=r"fake, seed 0 and other, seed 0 both use"):
        check_plan([one, other])


def test_resumed_run_keeps_its_number_of_threads(tmp_path):
    (one,) = plan(tmp_path, (0,))
    assert one.threads(2) == 2
    one.path.mkdir(parents=True)
    (one.path / "meta.json").write_text('{"threads": 1}')
    assert one.threads(2) == 1


def test_default_number_of_jobs_divides_the_processors(monkeypatch):
    monkeypatch.setattr(processes, "count_threads", lambda: 8)
    assert Processes()._jobs == 8
    assert Processes(threads=3)._jobs == 2
    assert Processes(threads=16)._jobs == 1


def test_the_failure_of_a_worker_has_no_name_of_an_internal_class(tmp_path):
    line = "orac.runs.directory.RunInUse: runs/x is in use by process 7."
    program = (sys.executable, "-c", f"print({line!r}); raise SystemExit(1)")
    worker = WorkerProcess(tmp_path, "{}", program)
    worker.process.wait()
    status, error = worker.result() or ("", "")
    assert status == "failed" and error.startswith("runs/x is in use by process 7. (")
