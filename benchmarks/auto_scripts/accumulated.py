"""A loop by hand: accumulation, mixed precision, clipping, a schedule, a compiled model."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from words import Words, rows


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(TensorDataset(rows()), batch_size=8, shuffle=True)
    model = torch.compile(Words().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    scaler, entropy = torch.amp.GradScaler(device), nn.CrossEntropyLoss()
    for _ in range(4):
        for number, (tokens,) in enumerate(loader, 1):
            tokens = tokens.to(device)
            with torch.autocast(device, dtype=torch.float16):
                loss = entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()) / 2
            scaler.scale(loss).backward()
            if number % 2 == 0:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                schedule.step()


main()
