"""Hugging Face's Accelerate in an elastic loop: precision, devices and clipping are its, the workers are Horovod's.

See docs/libraries.md.
"""

import argparse

import horovod.torch as hvd
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--mixed-precision", default="no", choices=["no", "bf16"])
args = parser.parse_args()

elastic.init()
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
data = TensorDataset(images, torch.tensor(digits.target))

accelerator = Accelerator(mixed_precision=args.mixed_precision)  # of one process: each worker has its own
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
model = accelerator.prepare(model)  # the model alone: neither the optimizer nor a loader
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for batch in state.batches(data, global_batch_size=64):
            images, labels = (tensor.to(accelerator.device) for tensor in batch)
            outcome = model(images)
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(outcome, labels) * state.weight)
            optimizer.synchronize()
            accelerator.clip_grad_norm_(model.parameters(), 100.0)  # of the averaged gradient, hence the order
            with optimizer.skip_synchronize():
                optimizer.step()
            state.accuracy = (outcome.argmax(1) == labels).float().mean().item()
            state.commit()


state = elastic.State(model=model, optimizer=optimizer, accuracy=0.0)
train(state)
if hvd.rank() == 0:
    print(f"accuracy {state.accuracy:.3f} in the last step")
