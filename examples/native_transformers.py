"""transformers' own Trainer over torch.distributed (`--engine torch`), begun again in each world.

See docs/libraries.md.
"""

import argparse
from pathlib import Path

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--folder", default="snapshots")
args = parser.parse_args()

torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
)
tokens = torch.randint(2, 32, (1024, 8))
tokens[::2, 0] = 1  # the first token says which class it is
trainer = transformers.Trainer(
    model=transformers.BertForSequenceClassification(config),
    args=transformers.TrainingArguments(
        output_dir=args.folder,
        use_cpu=not torch.cuda.is_available(),
        num_train_epochs=args.epochs,
        per_device_train_batch_size=32,
        save_steps=10,
        save_total_limit=2,
        disable_tqdm=True,
        report_to="none",
    ),
    train_dataset=[{"input_ids": row, "labels": int(row[0] == 1)} for row in tokens],
)
Path(args.folder).mkdir(parents=True, exist_ok=True)
trainer.train(resume_from_checkpoint=get_last_checkpoint(args.folder))
print(f"rank {trainer.args.process_index} of {trainer.args.world_size} has trained to epoch {trainer.state.epoch:.0f}")
