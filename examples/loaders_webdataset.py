"""Shards of webdataset, shuffled: every worker reads them, and decodes what it trains. See docs/loaders.md."""

import argparse
import tempfile

import horovod.torch as hvd
import torch
import webdataset as wds
from sklearn.datasets import load_digits
from torch import nn

import hvd_elastic as elastic

SHARDS = 8

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

elastic.init()
torch.manual_seed(0)
digits = load_digits()
folder = tempfile.mkdtemp(prefix="shards-")  # as if each host had a copy; the names are the same on all
for shard in range(SHARDS):
    with wds.TarWriter(f"{folder}/{shard}.tar") as writer:
        for index in range(shard, len(digits.target), SHARDS):
            image = digits.images[index].astype("uint8").tobytes()
            writer.write({"__key__": f"{index:06}", "image.bin": image, "cls": str(digits.target[index])})

# detshuffle goes by the epoch, and a seed makes the order the same on all workers. There is no nodesplitter: batches()
# divides the samples itself.
data = wds.WebDataset(f"{folder}/{{0..{SHARDS - 1}}}.tar", shardshuffle=SHARDS, detshuffle=True, seed=0)
data = data.compose(wds.detshuffle(256, seed=0))


def collate(samples):
    """Decode here, not in the pipeline: only the samples of this worker come here."""
    images = [torch.frombuffer(bytearray(sample["image.bin"]), dtype=torch.uint8) for sample in samples]
    return torch.stack(images).float() / 16, torch.tensor([int(sample["cls"]) for sample in samples])


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for batch, target in state.batches(data, global_batch_size=64, collate_fn=collate):
            loss = nn.functional.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            (loss * state.weight).backward()
            optimizer.step()
            state.accuracy = (model(batch).argmax(1) == target).float().mean().item()
            state.commit()


state = elastic.State(model=model, optimizer=optimizer, accuracy=0.0)
train(state)
if hvd.rank() == 0:
    print(f"accuracy {state.accuracy:.3f} in the last step")
