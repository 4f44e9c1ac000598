"""A stack layer in a PyTorch network of your own.

The task: a string such as 0111#1110 is read from left to right, and from the # on the network has to say
which symbol comes next so that the second half is the first one in reverse, and when the string is over. A
string is accepted if every symbol after the # is the one that the network named. `StackRNN` takes the place
of `torch.nn.LSTM`; with `stack=None` it is an LSTM, so that one class serves as the network without a stack.

Both are trained on short strings and tested on longer ones, half of which have one wrong symbol.

    python examples/stack_in_a_classifier.py
"""

import random
from typing import Any

import torch
from torch import Tensor, nn

from ndstack.nn import StackRNN, initialize
from ndstack.stacks import Nondeterministic, Stack

SYMBOLS = "01#"
END = 2  # the class "nothing comes any more"; classes 0 and 1 are the symbols 0 and 1
TRAIN_HALVES = range(4, 16)  # strings of 9 to 31 symbols
TEST_HALVES = range(16, 26)  # of 33 to 51: longer than any that was trained on


class Network(nn.Module):
    """Symbols in; for each of them, one logit for every class that may follow."""

    def __init__(self, stack: Stack[Any] | None) -> None:
        super().__init__()
        self.rnn = StackRNN(input_size=len(SYMBOLS), hidden_size=20, stack=stack)
        self.classify = nn.Linear(20, 3)
        initialize(self, seed=2)

    def forward(self, symbols: Tensor) -> Tensor:
        """[batch, length] -> [batch, length, 3]."""
        one_hot = nn.functional.one_hot(symbols, len(SYMBOLS)).float()
        output, _ = self.rnn(one_hot)  # called like torch.nn.LSTM with batch_first=True
        logits: Tensor = self.classify(output)
        return logits


def make_batch(half: int, size: int, rng: random.Random) -> tuple[Tensor, Tensor]:
    """Strings w#wᴿ with |w| = half, and for each place from the # on, what comes next."""
    words = [[rng.randrange(2) for _ in range(half)] for _ in range(size)]
    strings = [[*word, SYMBOLS.index("#"), *reversed(word)] for word in words]
    targets = [[*reversed(word), END] for word in words]
    return torch.tensor(strings), torch.tensor(targets)


def train(network: Network, steps: int, rng: random.Random) -> float:
    """Train on batches of strings of one length; the last loss."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    loss = torch.tensor(0.0)
    for _ in range(steps):
        half = rng.choice(TRAIN_HALVES)
        strings, targets = make_batch(half, 10, rng)
        logits = network(strings)[:, half:]  # before the # anything may come
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()
    return loss.item()


@torch.no_grad()
def test(network: Network, rng: random.Random) -> tuple[float, float]:
    """The share of symbols named rightly, and of strings rightly accepted or rejected."""
    right = total = verdicts = strings_read = 0
    for half in TEST_HALVES:
        strings, targets = make_batch(half, 10, rng)
        named = network(strings)[:, half:].argmax(dim=2)
        right += int((named == targets).sum())
        total += targets.numel()
        wrong = strings.clone()
        for row in wrong[5:]:  # the second five get one wrong symbol behind the #
            place = half + 1 + rng.randrange(half)
            row[place] = 1 - row[place]
        follows = torch.cat([wrong[:, half + 1 :], torch.full((10, 1), END)], dim=1)
        accepted = (network(wrong)[:, half:].argmax(dim=2) == follows).all(dim=1)
        verdicts += int((accepted == (torch.arange(10) < 5)).sum())
        strings_read += 10
    return right / total, verdicts / strings_read


def main(steps: int = 1500) -> dict[str, dict[str, float]]:
    """Train both networks and compare them on longer strings."""
    torch.set_num_threads(1)
    results = {}
    for name, stack in (("with a stack", Nondeterministic(states=2, symbols=3)), ("without", None)):
        rng = random.Random(1)
        network = Network(stack)
        loss = train(network, steps, rng)
        symbols, strings = test(network, rng)
        results[name] = {"loss": loss, "symbols": symbols, "strings": strings}
    print(f"{'network':14}{'last loss':>10}{'symbols':>10}{'strings':>10}   (right, on longer strings)")
    for name, row in results.items():
        print(f"{name:14}{row['loss']:10.4f}{row['symbols']:10.3f}{row['strings']:10.3f}")
    return results


if __name__ == "__main__":
    main()
