"""Two models, two optimizers, and noise that the step draws."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def layers(last: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)), nn.Linear(64, last))


class Adversaries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maker, self.judge = layers(64), layers(1)


both = Adversaries()
makes, judges = (torch.optim.Adam(each.parameters(), 1e-3) for each in (both.maker, both.judge))
entropy = nn.BCEWithLogitsLoss()
for _ in range(4):
    for (real,) in DataLoader(TensorDataset(torch.randn(256, 64)), batch_size=8, shuffle=True):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        noise = torch.randn(len(real), 64)
        judges.zero_grad()
        (entropy(both.judge(real), ones) + entropy(both.judge(both.maker(noise).detach()), zeros)).backward()
        judges.step()
        makes.zero_grad()
        entropy(both.judge(both.maker(noise)), ones).backward()
        makes.step()
