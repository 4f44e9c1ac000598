"""Parts of a user's own, registered from outside the package: trained, saved, resumed, evaluated, swept."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ndstack import languages, register
from ndstack.errors import NdstackError
from ndstack.nn import LanguageModel, StackRNN, load, models
from ndstack.nn.storage.description import describe_model
from ndstack.stacks import Stack, State, Superposition
from ndstack.training import Run, RunConfig, TrainingConfig, fit, train
from tests.training import own_parts

SOURCES = Path(own_parts.__file__)
SWEEP = """
name = "mine"
languages = ["coins", "oddness"]
models = [{ label = "Counter", names = ["tally-2"] }, { label = "Summing", names = ["summing-3"] }]

[settings]
data = { train = 20, validation = 10, lengths = [2, 4], test_lengths = [2, 4], test_per_length = 2 }
options = { init_bound = 0.2 }
training = { max_epochs = 1 }
"""


IN_ONE_PROCESS = """
import json, sys
from tests.commands import ndstack
print(json.dumps([vars(ndstack(*words.split())) for words in json.load(sys.stdin)]))
"""


@pytest.fixture
def ndstack(tmp_path):
    """Commands, run in a process for which a package with an entry point of its own is installed."""
    site = tmp_path / "site"
    shutil.copytree(SOURCES.parent, site / "own", ignore=lambda folder, names: {*names} - {SOURCES.name})
    information = site / "own-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[ndstack.plugins]\nown = own.own_parts\n")
    (tmp_path / "sweep.toml").write_text(SWEEP)
    environment = {key: value for key, value in os.environ.items() if key != register.REGISTERED}
    environment["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, sys.path), str(SOURCES.parents[2])])

    def run(*commands):
        done = subprocess.run(
            [sys.executable, "-c", IN_ONE_PROCESS],
            cwd=tmp_path,
            env=environment,
            input=json.dumps(commands),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_package_with_an_entry_point(ndstack, tmp_path):
    small = "--lengths 2:4 --train 20 --max-epochs 2 --threads 1 --quiet --json"
    options = "--set options.controller=leaky --set options.hidden=4 --set options.arguments.scale=0.5"
    *done, refused, swept = ndstack(
        f"train coins(k=3) --model tally-2 --out one {small} {options}",
        "train --resume one --max-epochs 3 --quiet --json",
        "evaluate one --json",
        f"train oddness --model summing+sup-2 --out two {small}",
        "train --resume two --max-epochs 3 --quiet --json",
        "evaluate two --split validation --json",
        "evaluate two",
        "sweep sweep.toml --out swept --workers 1 --quiet",
    )
    assert all(one["returncode"] == 0 for one in (*done, swept)), [one["stderr"] for one in (*done, swept)]
    assert refused["returncode"] == 2
    assert "method `test`" in refused["stderr"]
    description = json.loads((tmp_path / "one" / "model.json").read_text())["backbone"]
    assert description["stack"] == {"kind": "tally", "size": 2, "scale": 0.5}
    assert description["controller"] == "leaky"
    _, resumed, measured, _, resumed_too, measured_too = [json.loads(one["stdout"]) for one in done]
    assert resumed["epochs"] == resumed_too["epochs"] == 3
    assert measured["overall"]["difference"] > 0
    assert measured_too["cross_entropy"] > 0
    results = [json.loads(path.read_text()) for path in (tmp_path / "swept").rglob("result.json")]
    assert [result["epochs"] for result in results] == [1] * 4


def test_without_its_package_a_name_is_unknown_and_the_error_says_how_to_register_it(tmp_path, monkeypatch):
    for name in (register.stack, register.network, register.language, register.task, register.controller):
        monkeypatch.setattr(name, "_parts", {})
    hint = r"@ndstack\.register\.{}, in a module that an entry point of the group ndstack.plugins or"
    with pytest.raises(NdstackError, match=r"no model called 'qqq-2'; .*" + hint.format("stack")):
        models.build("qqq-2", "dyck")
    with pytest.raises(NdstackError, match=r"no language called 'qqq'; .*" + hint.format("language")):
        languages.get("qqq")
    with pytest.raises(NdstackError, match=r"no controller called 'qqq'; .*" + hint.format("controller")):
        models.build("lstm", "dyck", controller="qqq")


@pytest.fixture
def own():
    """The parts, registered in this process by their decorators."""
    return importlib.import_module("tests.training.own_parts")


def small(model, language="coins", **training):
    return RunConfig.of(
        {
            "language": language,
            "model": model,
            "data": {"train": 20, "validation": 10, "lengths": (2, 4), "test_lengths": (2, 4)},
            "training": {"max_epochs": 1, "threads": 1, "device": "cpu", **training},
        }
    )


@pytest.mark.parametrize("name", ["tally-2", "tf+tally-2", "summing-5", "summing+tally-3"])
def test_the_decorator_makes_names_of_models(own, name, tmp_path):
    train(tmp_path / "run", small(name))
    model = Run.open(tmp_path / "run").load()
    assert describe_model(model) == describe_model(models.build(name, "coins"))
    again = load(tmp_path / "run", parameters="best.safetensors")
    assert torch.equal(again.logits(["ab", "ba"]), model.logits(["ab", "ba"]))


def test_processes_that_are_started_import_the_module_of_a_decorator(own, tmp_path):
    assert own.__name__ in os.environ[register.REGISTERED].split(",")
    result = train(tmp_path / "run", small("tally-2", processes=2))
    assert result.epochs == 1


def test_arguments_that_do_not_fit_are_an_error_in_one_line(own):
    with pytest.raises(NdstackError, match=r"Counter\(size: int, scale: float = 1.0\): too many positional"):
        models.build("tally-2-3-4", "dyck")
    with pytest.raises(NdstackError, match="unexpected keyword argument 'colour'"):
        models.build("tally-2", "dyck", arguments={"colour": 1})
    with pytest.raises(NdstackError, match=r"arguments=.* is for models with a registered stack or network"):
        models.build("sup-2", "dyck", arguments={"scale": 1})
    with pytest.raises(NdstackError, match="hidden=9 given for summing-3, but it is for models with a rec"):
        models.build("summing-3", "dyck", hidden=9)


def test_names_can_be_given_once(own):
    with pytest.raises(NdstackError, match="there is a stack called 'tally' already"):
        register.stack("tally")(Superposition)
    with pytest.raises(NdstackError, match="there is a controller called 'lstm' already"):
        register.controller("lstm")(own.Leaky)
    with pytest.raises(NdstackError, match="there is a language called 'dyck' already"):
        register.language("dyck")(own.coins)
    with pytest.raises(NdstackError, match="'My Stack' is not a name for a stack"):
        register.stack("My Stack")
    assert register.stack("tally")(own.Counter) is own.Counter


class Forgetful(Stack[State]):
    """A stack that does not keep its argument."""

    action_size, push_size, reading_size = 1, 0, 1

    def __init__(self, size: int) -> None:
        super().__init__()

    def start(self, batch_size, *, dtype=None, device=None):
        return State(torch.zeros(batch_size, 1, dtype=dtype, device=device))

    def _step(self, state, actions, pushed):
        return State(actions)


@pytest.mark.parametrize("registered", [False, True])
def test_what_cannot_be_described_is_refused_before_anything_is_written(registered, tmp_path, monkeypatch):
    monkeypatch.setenv(register.REGISTERED, "")
    monkeypatch.setattr(register.stack, "_parts", {"forgetful": Forgetful} if registered else {})
    wrong = "does not keep its argument size" if registered else r"not registered; .*@ndstack.register.stack"
    plan = languages.Plan(train=20, validation=10, lengths=(4, 8), test_per_length=0)
    data = languages.make_dataset(languages.get("dyck"), 1, plan)
    model = LanguageModel(StackRNN(4, 5, Forgetful(3)), data.language.alphabet)
    for _ in range(2):
        with pytest.raises(NdstackError, match=f"a model with a Forgetful cannot be saved, since .*{wrong}"):
            fit(model, data, TrainingConfig(max_epochs=1), folder=tmp_path / "run")
        with pytest.raises(NdstackError, match="a model with a Forgetful cannot be saved"):
            model.save(tmp_path / "model")
        assert not list(tmp_path.iterdir())


def test_a_plugin_that_fails_is_named(monkeypatch, tmp_path):
    (tmp_path / "broken_parts.py").write_text("raise RuntimeError('no such luck')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(register.VARIABLE, "broken_parts")
    message = "the plugin broken_parts cannot be imported: RuntimeError: no such luck"
    with pytest.raises(NdstackError, match=message):
        models.build("unheard-of-3", "dyck")


def test_a_module_that_a_decorator_noted_need_not_be_found_elsewhere(monkeypatch):
    monkeypatch.setenv(register.REGISTERED, "nowhere.parts,broken name")
    register.load_plugins()
    assert "nowhere-part" not in register.stack.names
    monkeypatch.setenv(register.VARIABLE, "nowhere.parts")
    with pytest.raises(NdstackError, match=r"nowhere\.parts cannot be imported"):
        register.load_plugins()
