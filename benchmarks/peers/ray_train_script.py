"""paced.py with Ray Train, as its guides to fault tolerance and elastic training are written.

`TorchTrainer` with `num_workers=(1, 3)`, failures without a limit, a checkpoint each hundred steps and one when a node
is about to go (`get_preemption_info`), which rank 0 reports. After each change all workers start anew from the latest
of them, at the beginning of its epoch, as DistributedSampler divides it among the workers that there are then.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(options: dict[str, Any]) -> None:
    """What each worker runs."""
    from step_log import StepLog

    from hvd_elastic.local.demo.demo_data import read_digits

    torch.set_num_threads(1)
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    images, labels = read_digits()
    dataset = TensorDataset(torch.tensor(images).flatten(1), torch.tensor(labels), torch.arange(len(labels)))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch = step = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "state.pt"))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch, step = saved["epoch"], saved["step"]
    parallel = prepare_model(model)
    sampler: DistributedSampler[int] = DistributedSampler(dataset, num_replicas=size, rank=rank)
    log = StepLog(Path(options["events"]))
    is_saved_for_preemption = False
    while True:
        sampler.set_epoch(epoch)
        for inputs, wanted, samples in DataLoader(dataset, batch_size=options["batch"], sampler=sampler):
            log.samples(samples.tolist(), rank=rank, size=size, step=step + 1, epoch=epoch)
            optimizer.zero_grad()
            nn.functional.cross_entropy(parallel(inputs), wanted).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            time.sleep(options["pace"])
            step += 1
            log.step(rank=rank, size=size, step=step)
            is_due = step % options["checkpoint_steps"] == 0
            # All workers meet in the question, so it is not asked at each step.
            if step % options["ask_steps"] == 0 and not is_saved_for_preemption and ray.train.get_preemption_info():
                is_due = is_saved_for_preemption = True
            if is_due:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
                report(state if rank == 0 else None)
        epoch += 1


def report(state: dict[str, Any] | None) -> None:
    """Tell Ray of a checkpoint; all workers do, and only one has the state."""
    if state is None:
        ray.train.report({})
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder, "state.pt"))
        ray.train.report({"step": state["step"]}, checkpoint=Checkpoint.from_directory(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="of the Ray cluster")
    parser.add_argument("--workers", type=int, required=True, help="at most")
    parser.add_argument("--resize-seconds", type=float, required=True, help="between two looks for new nodes")
    parser.add_argument("--storage", type=Path, required=True, help="folder that all workers see")
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--pace", type=float, default=0.05, help="seconds that each step takes at least")
    parser.add_argument("--batch", type=int, default=20, help="samples of each worker")
    parser.add_argument("--checkpoint-steps", type=int, default=100)
    parser.add_argument("--ask-steps", type=int, default=10, help="between two questions whether a node goes")
    args = parser.parse_args()
    ray.init(address=args.address)
    trainer = TorchTrainer(
        train,
        train_loop_config={
            "events": str(args.events),
            "pace": args.pace,
            "batch": args.batch,
            "checkpoint_steps": args.checkpoint_steps,
            "ask_steps": args.ask_steps,
        },
        scaling_config=ScalingConfig(
            num_workers=(1, args.workers), elastic_resize_monitor_interval_s=args.resize_seconds
        ),
        run_config=RunConfig(
            name="days",
            storage_path=str(args.storage),
            failure_config=FailureConfig(max_failures=-1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    trainer.fit()
