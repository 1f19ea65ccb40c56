"""Train a tiny causal language model, made on the spot, by the Trainer of transformers, and print its loss."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

LENGTH = 16  # tokens of a sequence
SAMPLES = 64


def samples() -> list[dict[str, torch.Tensor]]:
    """Return sequences that count up from a random token, which a small model learns in a few steps."""
    starts = torch.randint(0, 16, (SAMPLES, 1), generator=torch.Generator().manual_seed(0))
    tokens = (starts + torch.arange(LENGTH)) % 32
    return [{"input_ids": row, "labels": row} for row in tokens]


def main() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=40, learning_rate=1e-2, logging_steps=40, report_to=[], save_strategy="no"
        )
        result = Trainer(model=model, args=arguments, train_dataset=samples()).train()
    print(f"loss {result.training_loss:.2f} on {model.device.type}")


if __name__ == "__main__":
    main()
