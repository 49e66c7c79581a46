"""The ranks of a split model by what they share: one axis of a mesh for every kind."""

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shardwise.run.auto.plan import AXES, Degrees

COPIES, SHARDS = "dp_replicate", "dp_shard"
"""axes in place of dp, where each shard has copies"""


def mesh_of(degrees: Degrees, device: str) -> DeviceMesh:
    """One axis for every kind of sharing, in the order in which ranks are numbered; two for dp where each shard has
    copies."""
    sizes = {axis: getattr(degrees, axis) for axis in AXES}
    if degrees.replicas > 1:
        sizes = {"pp": degrees.pp, COPIES: degrees.replicas, SHARDS: degrees.shards, "cp": degrees.cp, "tp": degrees.tp}
    return init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def batch_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """The ranks that share the batch."""
    copied = COPIES in (mesh.mesh_dim_names or ())
    return mesh[COPIES, SHARDS]._flatten("dp") if copied else mesh["dp"]


def sharding_mesh(degrees: Degrees, mesh: DeviceMesh) -> DeviceMesh | None:
    """The ranks over which FSDP2 shards: those that share the batch, and those that share the sequence. With two axes
    it shards over the second and copies over the first."""
    if degrees.replicas > 1:
        return mesh[COPIES, SHARDS]
    if degrees.dp > 1 and degrees.cp > 1:
        return mesh["dp", "cp"]._flatten("dp_cp")
    return mesh["dp"] if degrees.dp > 1 else mesh["cp"] if degrees.cp > 1 else None


def shard_place(degrees: Degrees, mesh: DeviceMesh) -> tuple[int, int]:
    """(this rank's place, how many) among those that FSDP2 shards over."""
    over = sharding_mesh(degrees, mesh)
    if over is None:
        return 0, 1
    over = over[SHARDS] if degrees.replicas > 1 else over
    return over.get_local_rank(), over.size()
