"""Cost functions by name: what a person names is imported, what a file names is not."""

import os
import sys
from pathlib import Path

import pytest

import orac
from orac.cli.main import main
from orac.config import serialization as config_text
from orac.envs.gym_adapter.costs import import_cost_fn, name_of_cost_fn
from orac.runs.directory import run_path
from orac.training import saving

SETTINGS = {
    "agent.hidden_sizes": [16, 16],
    "agent.embedding_size": 8,
    "agent.num_quantiles": 8,
    "agent.num_policy_quantiles": 8,
    "training.gradient_steps": 0.25,
    "training.learning_starts": 100,
    "training.buffer_size": 2000,
    "training.batch_size": 32,
    "training.log_every": 100,
    "evaluation.every": 200,
    "evaluation.episodes": 3,
}
MODULE = """
from pathlib import Path
Path(__file__).with_name("was_run").touch()
CALLS = 3
def too_fast(obs, action, next_obs, info):
    return float(abs(next_obs[2]) > 4.0)
class Costs:
    @staticmethod
    def none(obs, action, next_obs, info):
        return 0.0
"""


class OwnCode:
    """A directory with a module of the user's own, which says when it was run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "own_costs.py").write_text(MODULE)

    def was_run(self) -> bool:
        """Whether the module was imported since the last time; it is forgotten again."""
        sys.modules.pop("own_costs", None)
        marker = self.path / "was_run"
        found = marker.exists()
        marker.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    code = OwnCode(tmp_path_factory.mktemp("code"))
    before, directory = list(sys.path), os.getcwd()
    os.chdir(code.path)
    yield code
    os.chdir(directory)
    sys.path[:] = before
    sys.modules.pop("own_costs", None)


def words(*more: str) -> list[str]:
    fields = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    return ["--quiet", "--total-steps=400", "--tail=0.25", *fields, *more]


@pytest.fixture(scope="module")
def run(own, tmp_path_factory):
    """Trained from the command line with a function beside the person who types."""
    out = tmp_path_factory.mktemp("runs")
    named = ["--env-id=Pendulum-v1", "--cost-fn=own_costs:too_fast", "--cost-limit=10"]
    assert main(["train", "--algo=wcsac", f"--out={out}", *named, *words()]) == 0
    assert own.was_run()
    return run_path(out, "Pendulum-v1", "wcsac", 0, "default")


def test_the_config_keeps_the_name_of_the_function(run):
    assert config_text.load(run / "config.yaml").env.cost_fn == "own_costs:too_fast"


def test_a_run_that_names_a_function_is_not_loaded_by_running_it(own, run):
    for load in (orac.load, orac.resume):
        with pytest.raises(ValueError, match="is not imported unasked"):
            load(run)
    assert not own.was_run()
    assert orac.load(run, cost_fn="own_costs:too_fast").num_timesteps == 400
    assert own.was_run()


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_the_program_says_what_to_type_and_then_does_it(own, run, command, capsys):
    assert main([command, str(run)]) == 1
    assert "Say so with --cost-fn own_costs:too_fast" in capsys.readouterr().err
    assert not own.was_run()
    more = ["--episodes=2"] if command == "evaluate" else ["--quiet"]
    assert main([command, str(run), "--cost-fn=own_costs:too_fast", *more]) == 0
    if command == "resume":
        words = f"orac evaluate {run} --cost-fn own_costs:too_fast"
        assert words in capsys.readouterr().out
    assert own.was_run()


def test_a_config_file_does_not_bring_its_function_along(own, run, tmp_path, capsys):
    config = [f"--config={run / 'config.yaml'}", f"--out={tmp_path}"]
    assert main(["train", *config]) == 1
    assert "is not imported unasked" in capsys.readouterr().err
    assert not own.was_run() and not list(tmp_path.iterdir())


def test_a_saved_agent_that_names_a_function_is_not_loaded_by_running_it(
    own, run, tmp_path
):
    orac.load(run, cost_fn=lambda *_: 0.0).save(tmp_path / "agent.zip")
    assert not own.was_run()
    assert saving.load(tmp_path / "agent.zip")[0].env.cost_fn.endswith("<lambda>")
    with pytest.raises(ValueError, match="<lambda>', which a file only names"):
        orac.load(tmp_path / "agent.zip")
    orac.load(tmp_path / "agent.zip", cost_fn=lambda *_: 0.0)


def test_another_function_on_resume_is_told(run):
    told = []
    orac.resume(run, cost_fn=lambda *_: 0.0, progress_bar=False, say=told.append)
    assert any("started with the cost function own_costs:too_fast" in t for t in told)


def test_a_module_that_registers_the_environment_is_not_imported_either(
    own, run, tmp_path
):
    copy = tmp_path / "run"
    copy.mkdir()
    text = (run / "config.yaml").read_text()
    (copy / "meta.json").write_bytes((run / "meta.json").read_bytes())
    (copy / "config.yaml").write_text(
        text.replace("id: Pendulum-v1", "id: own_costs:Swing-v0")
    )
    with pytest.raises(ValueError, match="Say so with --env-id own_costs:Swing-v0"):
        orac.load(copy, cost_fn="own_costs:too_fast")
    assert not own.was_run()


def test_a_name_may_reach_into_a_class(own):
    sys.path.insert(0, str(own.path))
    assert import_cost_fn("own_costs:Costs.none")(0, 0, 0, {}) == 0.0
    assert own.was_run()


def test_functions_have_names_and_callables_the_name_of_their_class():
    class Meter:
        def __call__(self, *_):
            return 0.0

    assert name_of_cost_fn(name_of_cost_fn) == (
        "orac.envs.gym_adapter.costs:name_of_cost_fn"
    )
    assert name_of_cost_fn(Meter()).endswith("Meter")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("too_fast", "my_costs:too_fast"),
        ("own_costs:", "its name as module:function, got 'own_costs:'"),
        (":too_fast", "its name as module:function"),
        ("no_such_module:too_fast", "which cannot be imported"),
        ("own_costs:too_fats", "has no function 'too_fats'. Did you mean 'too_fast'?"),
        ("own_costs:CALLS", "but it is a int"),
        ("", "its name as module:function, got ''"),
    ],
)
def test_a_name_that_leads_nowhere_is_a_sentence(own, name, says):
    sys.path.insert(0, str(own.path))
    with pytest.raises(ValueError) as caught:
        import_cost_fn(name)
    assert says in str(caught.value)
