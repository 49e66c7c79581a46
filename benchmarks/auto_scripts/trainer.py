"""Hugging Face's Trainer, on samples of which parts do not count."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from words import rows


class Padded(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.rows = rows()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        labels = self.rows[place].clone()
        labels[: place % 7] = -100
        return {"input_ids": self.rows[place], "labels": labels}


model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=4, n_head=8, vocab_size=96, n_positions=32))
with tempfile.TemporaryDirectory() as folder:
    told = TrainingArguments(
        folder, per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=40, learning_rate=1e-3,
        lr_scheduler_type="cosine", warmup_steps=2, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    Trainer(model=model, args=told, train_dataset=Padded()).train()
