"""A language of your own: from a grammar file to a plot.

`markup.cfg`, beside this file, is a toy markup language: words, bold text and italic text, nested in any
way; what is opened last is closed first. The grammar gives samples and exact probabilities, so that the
cross-entropy of the best model there can be is known. Two networks are trained for a short while, and the
plot shows how far above it they are, length by length, also on texts longer than any they were trained on.

    python examples/language_from_a_grammar_file.py
"""

import random
from pathlib import Path
from typing import Any

import torch

from ndstack import plotting, training
from ndstack.languages import Plan, from_grammar, make_dataset
from ndstack.nn import models
from ndstack.training.pictures import draw_by_length

GRAMMAR = Path(__file__).parent / "markup.cfg"
PLAN = Plan(train=1500, validation=150, test_per_length=20, lengths=(5, 20), test_lengths=(5, 30))


def main(out: Path = Path("markup.svg")) -> dict[str, Any]:
    """Sample, measure, train, plot."""
    torch.set_num_threads(1)
    language = from_grammar(GRAMMAR, name="markup")

    print("Texts of twelve symbols, and log p(text | length):")
    samples = [language.sample(12, random.Random(seed)) for seed in range(3)]
    for text in samples:
        print(f"  {language.log_probability(text):8.3f}  {' '.join(text)}")
    wrong = ("<b>", "<i>", "word", "</b>", "</i>")
    print(f"  {language.log_probability(wrong):8.3f}  {' '.join(wrong)}")

    data = make_dataset(language, seed=1, plan=PLAN)
    bound = language.lower_bound(data.test, lengths=PLAN.test_lengths)
    print(f"\nNo model can do better than {bound:.4f} nats a symbol on the test texts, on average.\n")

    evaluations = {}
    for name in ("rns-2-3", "lstm"):
        model = models.build(name, language, seed=1)
        training.fit(model, data, training.TrainingConfig(learning_rate=0.01, max_epochs=6, threads=1))
        evaluations[name] = training.evaluate(model, data)
        overall = evaluations[name].overall
        print(f"{name:8} {overall.cross_entropy:.4f} nats, {overall.difference:.4f} above the bound")
    plotting.save_figure(draw_by_length(evaluations, "markup, test texts"), out)
    print(f"\nBy length, given the length: {out}")
    return {"samples": samples, "wrong": wrong, "bound": bound, "evaluations": evaluations}


if __name__ == "__main__":
    main()
