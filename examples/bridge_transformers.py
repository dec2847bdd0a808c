"""The parts of a `transformers.Trainer`, trained by `elastic.Trainer`. See docs/libraries.md."""

import argparse
import tempfile

import torch
import transformers

import hvd_elastic as elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=32,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
    hidden_dropout_prob=0.0,  # a mask of dropout belongs to a batch, so it is another one at another size
    attention_probs_dropout_prob=0.0,
)
tokens = torch.randint(2, 32, (1024, 8))
tokens[::2, 0] = 1  # the first token says which class it is
data = [{"input_ids": row, "labels": int(row[0] == 1)} for row in tokens]

parts = transformers.Trainer(
    model=transformers.BertForSequenceClassification(config),
    args=transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), learning_rate=1e-3, weight_decay=0.01, report_to="none"
    ),
    train_dataset=data,
)
trainer = elastic.Trainer(
    parts.model,
    parts.create_optimizer(),
    loss=parts.compute_loss,
    data=parts.train_dataset,
    collate_fn=parts.data_collator,
    epochs=args.epochs,
    global_batch_size=64,
    evaluation=elastic.Evaluation(
        data=data,
        measure=lambda model, batch: {"accuracy": (model(**batch).logits.argmax(1) == batch["labels"]).float().mean()},
    ),
)
outcome = trainer.fit()
print(f"accuracy {outcome.evaluation['accuracy']:.3f}")
