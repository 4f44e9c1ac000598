import pytest
import torch
from torch.nn.functional import cross_entropy

from ndstack.nn import load, models
from ndstack.nn.language_models.language_model import IGNORED
from ndstack.text import cross_entropy as output_loss
from ndstack.text import total_loss


@pytest.mark.parametrize("rows", [1, 3, 256])
@pytest.mark.parametrize("ignored", [False, True])
def test_loss_and_gradients_are_torchs(monkeypatch, rows, ignored):
    monkeypatch.setattr(output_loss, "ROWS", rows)
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 11).double()
    hidden = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 11, (2, 5))
    if ignored:
        targets[1, 3:] = IGNORED
    wanted = cross_entropy(layer(hidden).flatten(0, 1), targets.flatten(), reduction="sum")
    inputs = (hidden, layer.weight, layer.bias)
    expected = torch.autograd.grad(3 * wanted, inputs)
    found = total_loss(hidden, layer, targets)
    torch.testing.assert_close(found, wanted)
    for mine, theirs in zip(torch.autograd.grad(3 * found, inputs), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    with torch.no_grad():
        torch.testing.assert_close(total_loss(hidden, layer, targets), wanted)
        each = output_loss.surprisals(hidden, layer, targets)
    torch.testing.assert_close(each.sum(), wanted.detach())
    assert each.shape == targets.shape
    assert not each[targets == IGNORED].any()


def test_logits_far_apart_do_no_harm():
    layer = torch.nn.Linear(1, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1e4], [0.0], [-1e4]]))
        layer.bias.zero_()
    hidden = torch.ones(1, 1, requires_grad=True)
    found = total_loss(hidden, layer, torch.tensor([2]))
    found.backward()
    assert found.item() == 2e4
    assert hidden.grad.item() == 2e4


def test_adaptive_softmax_is_a_distribution_with_the_same_loss(tmp_path):
    words = [f"w{index}" for index in range(40)]
    model = models.build("lstm", words, hidden=32, embedding=8, output="adaptive").double()
    symbols = torch.randint(0, 41, (3, 7))
    hidden, _ = model.hidden(symbols, model.start(3))
    log_p = model.output(hidden)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3, 7).double())
    targets = torch.randint(0, 41, (3, 7))
    targets[0, 3], targets[1, 2] = 40, IGNORED
    expected = cross_entropy(log_p.flatten(0, 1), targets.flatten(), reduction="sum")
    torch.testing.assert_close(total_loss(hidden, model.output, targets), expected)
    assert log_p[0, 3, 40] == model.output.inner.log_prob(hidden[0, 3:4])[0, 0]
    model.save(tmp_path)
    torch.testing.assert_close(load(tmp_path)(symbols)[0], model(symbols)[0])
