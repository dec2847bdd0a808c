"""Train a classifier on handwritten digits with all that a script of today has: docs/from-your-script.md explains it.

Half precision, accumulation, clipping, a warm-up, a moving average of the weights, an evaluation in mid-epoch, the best
weights, an early stop.
"""

import argparse
import copy
import math

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset, random_split

import hvd_elastic as elastic

GLOBAL_BATCH, MICRO_BATCH = 64, 16

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--evaluate-every", type=int, default=10, metavar="STEPS")
parser.add_argument("--patience", type=int, default=8, help="evaluations without a better accuracy, until it stops")
parser.add_argument("--loaders", type=int, default=0, help="loader processes of each worker")
args = parser.parse_args()

elastic.init()

# The GPU of the local rank; several workers of a host must not share one.
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
half = torch.float16 if device.type == "cuda" else torch.bfloat16

torch.manual_seed(0)  # the model's first weights, and the job's seed
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
whole = TensorDataset(images, torch.tensor(digits.target))
train_data, test_data = random_split(whole, [0.8, 0.2], generator=torch.Generator().manual_seed(0))

# An epoch has as many steps with one worker as with ten: what follows from their number needs no change at a resize.
steps_per_epoch = math.ceil(len(train_data) / GLOBAL_BATCH)
total_steps = args.epochs * steps_per_epoch


def rate(step):
    """The factor on the learning rate: a linear warm-up, then half a cosine."""
    warm_up = steps_per_epoch // 2
    return (step + 1) / warm_up if step < warm_up else 0.5 * (1 + math.cos(math.pi * step / total_steps))


model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, 10)
).to(device)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
scaler = torch.amp.GradScaler(device.type)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))

state = elastic.State(
    model=model,
    optimizer=optimizer,
    scheduler=scheduler,
    scaler=scaler,
    ema=ema,
    step=0,
    best_accuracy=0.0,
    best_weights=None,
    disappointments=0,
    stopped=False,
)


def evaluate():
    """Return the accuracy of the averaged weights: each worker takes every n-th sample, and all get the same number."""
    mine = [test_data[index] for index in range(hvd.rank(), len(test_data), hvd.size())]
    right = torch.zeros(())
    ema.eval()
    with torch.no_grad():
        for image, label in mine:
            right += ema(image[None].to(device)).argmax().item() == label.item()
    return hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(test_data)


def step_optimizer():
    """Average, unscale, clip, step: in this order, as each needs the one before."""
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def look_back(state):
    """Keep the best weights, and decide whether to go on."""
    accuracy = evaluate()
    if accuracy > state.best_accuracy:
        state.best_accuracy, state.disappointments = accuracy, 0
        state.best_weights = copy.deepcopy(ema.module.state_dict())
    else:
        state.disappointments += 1
    state.stopped = elastic.agree(state.disappointments >= args.patience)


@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(args.epochs):
        batches = state.batches(
            train_data, global_batch_size=GLOBAL_BATCH, micro_batch_size=MICRO_BATCH, num_workers=args.loaders
        )
        for image, label in batches:
            if state.stopped:
                break
            model.train()
            with torch.autocast(device.type, dtype=half):
                loss = nn.functional.cross_entropy(model(image.to(device)), label.to(device))
            scaler.scale(loss * state.weight).backward()
            if state.accumulating:
                continue
            step_optimizer()
            scheduler.step()
            ema.update_parameters(model)
            state.step += 1
            if state.step % args.evaluate_every == 0:
                look_back(state)
            state.commit(loss=loss.item(), rate=scheduler.get_last_lr()[0])
        if state.stopped:
            break


train(state)
if hvd.rank() == 0:
    why = "stopped early" if state.stopped else "all epochs are done"
    print(f"{why}: {state.step} of {total_steps} steps, best accuracy {state.best_accuracy:.3f}")
