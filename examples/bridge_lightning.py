"""A LightningModule, trained by `elastic.Trainer` in place of Lightning's. See docs/libraries.md."""

import argparse

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()


class Digits(pl.LightningModule):
    """As it stands in a script for Lightning's Trainer, but for what `validation_step` returns."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images):
        return self.layers(images)

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train/loss", loss)  # warns once that there is no Lightning trainer, and does nothing
        return loss

    def validation_step(self, batch, batch_idx):
        return {"accuracy": (self(batch[0]).argmax(1) == batch[1]).float().mean()}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
data = TensorDataset(images, torch.tensor(digits.target))
module = Digits()
trainer = elastic.Trainer(
    module,
    module.configure_optimizers(),
    loss=lambda _, batch: module.training_step(batch, 0),
    data=data,
    epochs=args.epochs,
    global_batch_size=64,
    evaluation=elastic.Evaluation(data=data, measure=lambda _, batch: module.validation_step(batch, 0)),
)
outcome = trainer.fit()
print(f"accuracy {outcome.evaluation['accuracy']:.3f}")
