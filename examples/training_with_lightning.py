"""A language model with a stack in Lightning: trained, logged, stopped and resumed.

The class is all that Lightning needs to know. Strings of different lengths are in one batch, and the model
takes them as they are.

    python examples/training_with_lightning.py
"""

import random
import warnings
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.utils.data import DataLoader

from ndstack import languages
from ndstack.nn import models


class Learner(lightning.LightningModule):
    """Any model by name, on strings of any language."""

    def __init__(self, model: str, language: str, learning_rate: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.learning_rate = learning_rate
        self.model = models.build(model, language, hidden=10)

    def training_step(self, words: list[str], _: int) -> Tensor:
        """Return the cross-entropy of a batch, in nats per symbol."""
        loss = self.model.cross_entropy(words, per="symbol")
        self.log("cross_entropy", loss, on_step=False, on_epoch=True, batch_size=len(words))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), self.learning_rate)


def main(folder: str | Path = "lightning-dyck", epochs: int = 4) -> list[float]:
    """Train for half of the epochs, then resume from the checkpoint; return the cross-entropies."""
    language, rng = languages.get("dyck"), random.Random(1)
    words = [str(language.sample(length, rng)) for length in range(2, 22, 2) for _ in range(5)]
    batches: DataLoader[list[str]] = DataLoader(words, batch_size=10, collate_fn=list)  # type: ignore[arg-type]
    found: list[float] = []
    for last in (epochs // 2, epochs):
        saving = ModelCheckpoint(folder, "model", enable_version_counter=False)
        trainer = lightning.Trainer(
            max_epochs=last,
            accelerator="cpu",
            enable_progress_bar=False,
            logger=CSVLogger(folder),
            log_every_n_steps=5,
            callbacks=[saving],
        )
        checkpoint = Path(folder) / "model.ckpt"
        trainer.fit(Learner("rns-2-3", "dyck"), batches, ckpt_path=checkpoint if found else None)
        found.append(trainer.callback_metrics["cross_entropy"].item())
        print(f"after {trainer.current_epoch} epochs: {found[-1]:.4f} nats per symbol")
    return found


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="lightning")
    main()
