"""A batch sampler of the script: sequences of like length together, so many numbers a batch. See docs/loaders.md.

The task: does a sequence hold more ones than zeros?
"""

import argparse
import random

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler

import hvd_elastic as elastic

SEQUENCES, LONGEST, NUMBERS_PER_BATCH = 800, 40, 400

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

elastic.init()
torch.manual_seed(0)
data = [torch.randint(2, (length,)).float() for length in torch.randint(1, LONGEST, (SEQUENCES,)).tolist()]


class Buckets(Sampler[list[int]]):
    """Sorts by length, cuts into batches of at most so many numbers with their padding, and shuffles the batches."""

    def __init__(self, lengths, most):
        self.batches: list[list[int]] = [[]]
        for index in sorted(range(len(lengths)), key=lengths.__getitem__):
            if (len(self.batches[-1]) + 1) * lengths[index] > most:
                self.batches.append([])
            self.batches[-1].append(index)

    def __iter__(self):
        return iter(random.sample(self.batches, len(self.batches)))

    def __len__(self):
        return len(self.batches)


def collate(sequences):
    """Centre the numbers around 0, so that padding with 0 says nothing."""
    targets = torch.tensor([float(sequence.mean() > 0.5) for sequence in sequences])
    return pad_sequence([2 * sequence - 1 for sequence in sequences], batch_first=True), targets


buckets = Buckets([len(sequence) for sequence in data], NUMBERS_PER_BATCH)
model = nn.GRU(1, 16, batch_first=True)
head = nn.Linear(16, 1)
both = nn.ModuleList([model, head])
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(both.parameters(), lr=0.01), named_parameters=both.named_parameters()
)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        right = 0
        # Four batches a step, whatever the number of workers: one of four workers takes one, one of two takes two.
        for batch, target in state.batches(data, batch_sampler=buckets, batches_per_step=4, collate_fn=collate):
            outcome = head(model(batch[..., None])[0].sum(1)).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(outcome, target)
            (loss * state.weight).backward()
            right += ((outcome > 0) == target.bool()).sum().item() if state.weight else 0
            if state.accumulating:
                continue
            optimizer.step()
            optimizer.zero_grad()
            state.commit()
        state.accuracy = hvd.allreduce(torch.tensor(float(right)), op=hvd.Sum, name="right").item() / SEQUENCES


state = elastic.State(model=both, optimizer=optimizer, accuracy=0.0)
train(state)
if hvd.rank() == 0:
    print(f"accuracy {state.accuracy:.3f} in the last epoch, over {len(buckets)} batches")
