"""PyTorch Lightning's own Trainer over torch.distributed (`--engine torch`), begun again in each world.

See docs/libraries.md.
"""

import argparse
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--folder", type=Path, default="snapshots")
args = parser.parse_args()


class Digits(pl.LightningModule):
    """As it stands in any script."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
loader = DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=64, shuffle=True)
trainer = pl.Trainer(
    accelerator="auto",
    strategy="ddp",
    max_epochs=args.epochs,
    logger=False,
    enable_progress_bar=False,
    callbacks=[ModelCheckpoint(args.folder, save_last=True, save_top_k=0)],
)
last = args.folder / "last.ckpt"
trainer.fit(Digits(), loader, ckpt_path=last if last.exists() else None)
print(f"rank {trainer.global_rank} of {trainer.world_size} has trained to epoch {trainer.current_epoch}")
