"""A LightningModule, whose training step calls parts of it one by one."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from words import VOCABULARY, WIDTH, Block, rows


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.body = nn.Sequential(*(Block() for _ in range(4)))
        self.head = nn.Linear(WIDTH, 10)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        tokens, labels = batch
        return nn.functional.cross_entropy(self.head(self.body(self.embed(tokens)).mean(1)), labels)

    def configure_optimizers(self) -> tuple[list[object], list[object]]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]


pl.seed_everything(3)
data = TensorDataset(rows(), torch.randint(0, 10, (256,)))
trainer = pl.Trainer(
    max_epochs=4, gradient_clip_val=0.5, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Classifier(), DataLoader(data, batch_size=8, shuffle=True))
