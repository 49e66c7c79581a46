"""A vision transformer (ViT-H/14) with FSDP2 inside each node and replicas across nodes (HSDP), blocks recomputed.

    shardwise trace examples/trace_vit.py --on dgx-h100:64

`SHAPE=tiny` takes two small blocks; there is no tensor parallelism and no token here, only images.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

SHAPES = {
    # blocks, width, heads, image, patch, images per rank, ranks that shard
    "h14": (32, 1280, 16, 224, 14, 64, 8),
    "tiny": (2, 64, 4, 32, 8, 2, 2),
}
BLOCKS, WIDTH, HEADS, IMAGE, PATCH, IMAGES, SHARD = SHAPES[os.environ.get("SHAPE", "h14")]
CLASSES = 1000


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        samples, patches, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(samples, patches, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(samples, patches, WIDTH))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.places = nn.Parameter(torch.zeros(1, (IMAGE // PATCH) ** 2, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x).mean(dim=1))


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    mesh = init_device_mesh("cuda", (dist.get_world_size() // SHARD, SHARD), mesh_dim_names=("replicate", "shard"))
    model = VisionTransformer().cuda()
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=precision)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch() -> tuple[Tensor, Tensor]:
    images = torch.randn(IMAGES, 3, IMAGE, IMAGE, device="cuda")
    return images, torch.randint(0, CLASSES, (IMAGES,), device="cuda")


def step(model: nn.Module, optimizer: torch.optim.Optimizer, samples: tuple[Tensor, Tensor]) -> None:
    images, labels = samples
    F.cross_entropy(model(images).float(), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
