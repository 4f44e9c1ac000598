"""What else torch offers: a compiler, transforms, exporters, and tools that change or hook layers."""

import os
import subprocess
import sys

import pytest
import torch
from torch.nn.utils import parametrizations, prune

from ndstack import functional
from ndstack.errors import NdstackError
from ndstack.nn import OutputOnly, StackAttention, StackRNN, Transformer, models
from ndstack.ops.runtime import backends
from ndstack.stacks import Nondeterministic, Several, Stratification, Superposition

STACKS = {
    "strat": lambda: Stratification(3),
    "sup": lambda: Superposition((2, 3)),
    "rns": lambda: Nondeterministic(2, 2),
    "vrns": lambda: Nondeterministic(2, 2, 3),
    "several": lambda: Several(Superposition(2), Nondeterministic(1, 2, 2)),
}

COLD = """
import sys, warnings
warnings.filterwarnings("error", message=".*lru_cache.*")
import torch
from ndstack.nn import StackAttention, StackRNN, Transformer
from ndstack.stacks import Nondeterministic, Stratification, Superposition

def same(network, run, backend):
    torch.compiler.reset()  # so many networks of one class are not usual
    compiled = torch.compile(network, backend=backend)
    results = []
    for called in (compiled, network):  # the compiled one first
        network.zero_grad()
        output = run(called)
        output.sin().sum().backward()
        results.append([output, *(p.grad for p in network.parameters())])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)

def by_steps(network, x):
    state, outputs = None, []
    for part in x.split(1, dim=1):
        output, state = network(part, state)
        outputs.append(output)
    return torch.cat(outputs, dim=1)

class Around(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.before, self.layer, self.after = torch.nn.Linear(4, 4), layer, torch.nn.Linear(layer.d_model, 3)

    def forward(self, x):
        hidden, _ = self.layer(torch.nn.functional.gelu(self.before(x)))
        return self.after(torch.nn.functional.gelu(hidden))

torch.manual_seed(0)
x = torch.randn(2, 3, 4)
for make in (lambda: Nondeterministic(2, 2), lambda: Nondeterministic(2, 2, 3), lambda: Superposition(3),
             lambda: Stratification(3)):
    same(StackRNN(4, 5, make()), lambda network: network(x)[0], sys.argv[1])
    same(StackRNN(4, 5, make(), controller="gru"), lambda network: by_steps(network, x), "aot_eager")
    same(StackAttention(4, make()), lambda network: network(x)[0], "aot_eager")
for layer in (StackRNN(4, 5, Nondeterministic(2, 2)), StackRNN(4, 5, Superposition(3)),
              StackAttention(4, Stratification(3))):
    layer.d_model = getattr(layer, "d_model", 5)
    same(Around(layer), lambda network: network(x), sys.argv[1])
stacked = Transformer(4, ["attention", Nondeterministic(2, 2, 3)], heads=2, feedforward=4, dropout=0.0)
same(stacked, lambda network: network(x)[0], sys.argv[1])
"""


@pytest.mark.compiled
def test_torch_compile_may_be_the_first_call_of_a_process(tmp_path):
    """It must not trace numba's compiler, which has nothing to do after an ordinary call."""
    compilers = [os.environ.get("CXX", "g++"), "clang++"]
    found = any(subprocess.run(["which", name], capture_output=True).returncode == 0 for name in compilers)
    backend = "inductor" if found else "aot_eager"  # the default one needs a C++ compiler
    # Code that inductor made before, for another instruction set, would end in a segmentation fault.
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COLD, backend]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("ndstack: compiling")]
    assert not any("ndstack" in line for line in said), done.stderr


def network(stack, **options):
    torch.manual_seed(1)
    return StackRNN(3, 4, STACKS[stack](), **options).double()


def outputs(rnn):
    torch.manual_seed(2)
    return rnn(torch.randn(2, 5, 3, dtype=torch.double))[0]


class Doubled(torch.nn.Module):
    """A layer around another, as LoRA has it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 2 * self.inner(x)


def double_weights(layer):
    """What `Doubled` does, done to the weights."""
    with torch.no_grad():
        layer.weight *= 2
        layer.bias *= 2


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("options", [{}, {"controller": "gru"}, {"reading_layers": 1}], ids=str)
def test_a_replaced_action_layer_counts(stack, options):
    rnn, expected = network(stack, **options), network(stack, **options)
    rnn.actions = Doubled(rnn.actions)
    double_weights(expected.actions)
    torch.testing.assert_close(outputs(rnn), outputs(expected))
    assert not rnn.in_one_operation


@pytest.mark.parametrize("stack", ["strat", "sup", "vrns"])
def test_a_replaced_push_layer_counts(stack):
    rnn, expected = network(stack), network(stack)
    rnn.pushed = Doubled(rnn.pushed)
    double_weights(expected.pushed)
    torch.testing.assert_close(outputs(rnn), outputs(expected))


@pytest.mark.parametrize("part", ["actions", "pushed", "controller", "stack"])
def test_hooks_are_called(part):
    rnn, calls = network("sup"), []
    expected = outputs(rnn)
    handle = getattr(rnn, part).register_forward_hook(lambda *given: calls.append(given))
    torch.testing.assert_close(outputs(rnn), expected)
    assert len(calls) == 5
    handle.remove()
    outputs(rnn)
    assert len(calls) == 5
    assert rnn.in_one_operation


def test_hooks_on_all_modules_are_called():
    rnn, called = network("rns"), []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda part, *_: called.append(part))
    outputs(rnn)
    handle.remove()
    assert rnn.actions in called
    assert rnn.controller in called


@pytest.mark.parametrize("stack", ["sup", "rns"])
def test_pruned_and_parametrised_layers_count(stack):
    rnn, expected = network(stack), network(stack)
    prune.l1_unstructured(rnn.actions, "weight", amount=0.5)
    with torch.no_grad():
        expected.actions.weight *= rnn.actions.weight_mask
    torch.testing.assert_close(outputs(rnn), outputs(expected))
    outputs(rnn).sum().backward()
    assert rnn.actions.weight_orig.grad is not None

    rnn = network(stack)
    parametrizations.weight_norm(rnn.actions)
    with torch.no_grad():
        rnn.actions.parametrizations.weight.original0 *= 2
    expected = network(stack)
    with torch.no_grad():
        expected.actions.weight *= 2
    torch.testing.assert_close(outputs(rnn), outputs(expected))
    assert rnn.in_one_operation  # its weight says it all


def test_pruned_controllers_and_other_controllers_count():
    rnn, expected = network("rns"), network("rns")
    prune.l1_unstructured(rnn.controller, "weight_hh_l0", amount=0.5)
    with torch.no_grad():
        expected.controller.weight_hh_l0 *= rnn.controller.weight_hh_l0_mask
    torch.testing.assert_close(outputs(rnn), outputs(expected))

    rnn, expected = network("rns"), network("rns")
    rnn.controller = torch.nn.LSTM(7, 4, bias=False, batch_first=True).double()
    for name, weight in expected.controller.named_parameters():
        with torch.no_grad():
            weight.copy_(getattr(rnn.controller, name)) if "weight" in name else weight.zero_()
    torch.testing.assert_close(outputs(rnn), outputs(expected))


def test_a_replaced_output_layer_counts_in_text():
    from ndstack.text import total_loss

    model = models.build("lstm", ("a", "b"))
    hidden, targets = torch.randn(2, 3, 20), torch.tensor([[0, 1, 2], [2, 1, 0]])
    with torch.no_grad():
        model.output.weight *= 2
        expected = total_loss(hidden, model.output, targets)
        model.output.weight /= 2
    hook = model.output.register_forward_pre_hook(lambda layer, given: (2 * given[0],))
    torch.testing.assert_close(total_loss(hidden, model.output, targets), expected)
    hook.remove()
    model.output = Doubled(model.output)
    assert model.log_probability(["ab"]).isfinite().all()


def test_a_subclass_that_changes_a_step_is_obeyed():
    class Tame(Superposition):
        def _step(self, state, actions, pushed):
            return super()._step(state, 0 * actions, pushed)

    class Still(Nondeterministic):
        def log_weights(self, actions):
            return 0 * actions

    for kind, arguments in ((Tame, (3,)), (Still, (2, 2))):
        torch.manual_seed(1)
        rnn = StackRNN(3, 4, kind(*arguments)).double()
        torch.manual_seed(1)
        expected = StackRNN(3, 4, kind.__base__(*arguments)).double()
        with torch.no_grad():
            expected.actions.weight.zero_()
            expected.actions.bias.zero_()
        torch.testing.assert_close(outputs(rnn), outputs(expected))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.jvp uses it
@pytest.mark.parametrize("stack", ["strat", "sup"])
def test_deterministic_stacks_go_through_torch_func(stack):
    rnn = network(stack)
    x = torch.randn(4, 2, 5, 3, dtype=torch.double)
    torch.testing.assert_close(torch.func.vmap(lambda one: rnn(one)[0])(x)[1], rnn(x[1])[0])
    values = dict(rnn.named_parameters())

    def loss(values):
        return torch.func.functional_call(rnn, values, (x[0],))[0].sin().sum()

    loss(values).backward()
    for name, gradient in torch.func.grad(loss)(values).items():
        torch.testing.assert_close(gradient, values[name].grad)
    shift = torch.ones_like(x[0])
    _, along = torch.func.jvp(lambda given: rnn(given)[0].sin().sum(), (x[0],), (shift,))
    given = x[0].clone().requires_grad_()
    (slope,) = torch.autograd.grad(rnn(given)[0].sin().sum(), given)
    torch.testing.assert_close(along, slope.sum())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.jvp uses it
@pytest.mark.parametrize("stack", ["rns", "vrns"])
def test_nondeterministic_stacks_refuse_torch_func_in_one_line(stack):
    rnn, x = network(stack), torch.randn(4, 2, 5, 3, dtype=torch.double)
    attention = StackAttention(3, rnn.stack).double()
    uses = [
        lambda: torch.func.vmap(lambda one: rnn(one)[0])(x),
        lambda: torch.func.grad(lambda one: rnn(one)[0].sum())(x[0]),
        lambda: torch.func.jvp(lambda one: rnn(one)[0], (x[0],), (x[1],)),
        lambda: torch.func.vmap(lambda one: rnn(one[:, :1])[0])(x),
        lambda: torch.func.vmap(lambda one: attention(one)[0])(x),
    ]
    for use in uses:
        with pytest.raises(NdstackError, match=r"torch\.func .*backward\(\)"):
            use()


@pytest.mark.parametrize("backend", ["cpu", "portable", "reference"])
def test_so_do_their_functions(backend):
    push, pop = torch.randn(2, 3, 1, 2, 1, 2), torch.randn(2, 3, 1, 2, 1)
    with pytest.raises(NdstackError, match=r"torch\.func .*backward\(\)"):
        torch.func.grad(lambda p: functional.nondeterministic(p, push, pop, backend=backend).sum())(push)


def test_states_come_from_workers_of_data_loaders():
    rnn, x = network("vrns"), torch.randn(2, 5, 3, dtype=torch.double)
    states = [rnn(x[:, :size])[1].detach() for size in (1, 4)]
    loaded = list(torch.utils.data.DataLoader(states, batch_size=None, num_workers=1))
    for one, other in zip(states, loaded, strict=True):
        torch.testing.assert_close(rnn(x, one)[0], rnn(x, other)[0])


RECORDED = {
    "lstm": lambda: StackRNN(3, 4, None),
    "sup": lambda: StackRNN(3, 4, Superposition(2)),
    "strat": lambda: StackRNN(3, 4, Stratification(2), controller="gru"),
    "vrns": lambda: StackRNN(3, 4, Nondeterministic(1, 2, 2)),
    "attention": lambda: StackAttention(3, Nondeterministic(1, 2)),
    "transformer": lambda: Transformer(3, ["attention", Superposition(3)], heads=1, feedforward=2),
}


@pytest.mark.filterwarnings("ignore")  # torch calls its own tools deprecated
@pytest.mark.parametrize("name", RECORDED)
def test_exporters_are_refused_in_one_line(name):
    module, x = RECORDED[name](), torch.randn(2, 5, 3)
    for use, message in (
        (lambda: torch.jit.trace(module, (x,)), r"^torch.jit.trace cannot take a network of ndstack: .*$"),
        (lambda: torch.jit.script(module), r"^torch.jit.script cannot take a network of ndstack: .*$"),
        (lambda: torch.export.export(module, (x,)), r"^torch.export cannot .*use_backend\('portable'\) .*$"),
    ):
        with pytest.raises(NdstackError, match=message):
            use()


@pytest.mark.filterwarnings("ignore")  # of torch
@pytest.mark.parametrize("name", RECORDED)
def test_the_portable_backend_can_be_exported(name):
    module, x = OutputOnly(RECORDED[name]()).eval(), torch.randn(2, 2, 3)
    with torch.no_grad(), backends.using("portable"):
        program = torch.export.export(module, (x,))
    torch.testing.assert_close(program.module()(x), module(x))
    other = torch.randn(2, 2, 3)
    torch.testing.assert_close(program.module()(other), module(other))


@pytest.mark.filterwarnings("ignore")  # of torch and onnxscript
@pytest.mark.parametrize("name", ["attention"])
def test_onnx(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    module, x = OutputOnly(RECORDED[name]()).eval(), torch.randn(2, 2, 3)
    with torch.no_grad(), backends.using("portable"):
        torch.onnx.export(module, (x,), tmp_path / "model.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    other = torch.randn(2, 2, 3)
    (found,) = session.run(None, {session.get_inputs()[0].name: other.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), module(other), rtol=1e-4, atol=1e-5)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")  # of torch
@pytest.mark.parametrize("name", ["strat", "attention", "transformer"])
def test_one_break_in_the_graph_of_torch_compile(name):
    from torch import _dynamo

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.inner, self.after = torch.nn.Linear(3, 3), RECORDED[name](), torch.nn.Tanh()

        def forward(self, x):
            output, _ = self.inner(self.before(x))
            return self.after(output)

    _dynamo.reset()
    found = _dynamo.explain(Network())(torch.randn(2, 5, 3))
    assert (found.graph_count, found.graph_break_count) == (2, 1)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")  # of torch
@pytest.mark.parametrize("name", ["vrns", "attention", "transformer", "language model"])
def test_torch_compile_calls_a_whole_network_as_it_is(name):
    """Graphs around the stack would take longer than they save."""
    from torch import _dynamo

    _dynamo.reset()
    if name == "language model":
        found = _dynamo.explain(models.build("vrns-1-2-2", ("a", "b")))(torch.zeros(2, 5, dtype=torch.long))
    else:
        found = _dynamo.explain(RECORDED[name]())(torch.randn(2, 5, 3))
    assert (found.graph_count, found.op_count) == (0, 0)
