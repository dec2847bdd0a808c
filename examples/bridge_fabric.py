"""Lightning Fabric in an elastic loop: precision and devices are Fabric's, the workers are Horovod's.

See docs/libraries.md.
"""

import argparse

import horovod.torch as hvd
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments import LightningEnvironment
from lightning_fabric.strategies import Strategy
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--precision", default="32-true", choices=["32-true", "bf16-mixed"])
args = parser.parse_args()

OPERATIONS = {"mean": hvd.Average, "sum": hvd.Sum, "max": hvd.Max, "min": hvd.Min}


class HorovodStrategy(Strategy):
    """What Fabric asks of the other workers, asked through Horovod. Rank and size are those of the present world."""

    @property
    def root_device(self):
        return torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")

    is_global_zero = property(lambda _: hvd.rank() == 0)
    global_rank = property(lambda _: hvd.rank())
    local_rank = property(lambda _: hvd.local_rank())
    world_size = property(lambda _: hvd.size())

    def module_to_device(self, module):
        module.to(self.root_device)

    def all_reduce(self, tensor, group=None, reduce_op="mean"):
        return hvd.allreduce(tensor, op=OPERATIONS[reduce_op])

    def all_gather(self, tensor, group=None, sync_grads=False):
        return hvd.allgather(tensor.unsqueeze(0))

    def broadcast(self, obj, src=0):
        return hvd.broadcast_object(obj, root_rank=src)

    def barrier(self, name=None):
        hvd.barrier()


elastic.init()
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
data = TensorDataset(images, torch.tensor(digits.target))

# With an environment given, Fabric does not load MPI to see whether it is in one, which fails where mpi4py has no MPI.
fabric = Fabric(strategy=HorovodStrategy(), precision=args.precision, plugins=LightningEnvironment())
fabric.launch()  # starts no process: the strategy has no launcher
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
)
module = fabric.setup_module(model)  # not the optimizer: Fabric's wrapper and Horovod's each call the other's methods


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        for batch in state.batches(data, global_batch_size=64):
            images, labels = fabric.to_device(batch)
            outcome = module(images)
            optimizer.zero_grad()
            fabric.backward(nn.functional.cross_entropy(outcome, labels) * state.weight)
            optimizer.step()
            right = (outcome.argmax(1) == labels).float().mean()
            state.accuracy = fabric.all_reduce(right).item()
            state.commit()


state = elastic.State(model=model, optimizer=optimizer, accuracy=0.0)
train(state)
if hvd.rank() == 0:
    print(f"accuracy {state.accuracy:.3f} in the last step")
