"""Samples of topologies: NCCL's XML and the matrix of nvidia-smi, with what can be wrong about a machine."""


def nccl_xml(device: str = "0x2330", sm: int = 90, lame: int | None = None, speed: int = 400_000, rails: bool = False):
    """Eight GPUs, each with its card under one PCIe switch; `lame`: a GPU whose NVLinks are down."""
    lines = ['<system version="1">']
    for cpu in range(2):
        lines.append(f'<cpu host_hash="0x1" numaid="{cpu}" arch="x86_64" vendor="GenuineIntel">')
        for dev in range(4 * cpu, 4 * cpu + 4):
            links = [
                f'<nvlink target="0000:0{k}:00.0" count="{c}" tclass="0x068000"/>' for k, c in enumerate((5, 4, 4, 5))
            ]
            pcie = 'link_speed="32.0 GT/s PCIe" link_width="16"'
            rail = f'rail="{dev % 4}"' if rails else ""
            lines += [
                f'<pci busid="0000:{16 + dev:02x}:00.0" class="0x060400" {pcie}>',
                f'<pci busid="0000:{64 + dev:02x}:00.0" class="0x030200" device="{device}" {pcie}>',
                f'<gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="1">',
                *([] if dev == lame else links), "</gpu></pci>",
                f'<pci busid="0000:{96 + dev:02x}:00.0" class="0x020700" {pcie}>',
                f'<nic><net name="mlx5_{dev}" dev="{dev}" speed="{speed}" latency="0.0" {rail}/></nic></pci></pci>',
            ]  # fmt: skip
        # the card of the host's own network is listed under both CPUs
        lines.append('<nic><net name="eth0" dev="8" speed="10000" port="0" latency="0.0" gdr="0"/></nic></cpu>')
    return "\n".join([*lines, "</system>"])


def cube_xml() -> str:
    """A DGX-1 V100: links lead from GPU to GPU."""
    pairs = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 1}
    pairs |= {(a + 4, b + 4): n for (a, b), n in pairs.items()} | {(a, a + 4): 2 for a in range(4)}
    lines = ['<system version="1"><cpu numaid="0">']
    for dev in range(8):
        mine = {(b if a == dev else a): n for (a, b), n in pairs.items() if dev in (a, b)}
        links = [f'<nvlink target="0000:0{peer}:00.0" count="{n}" tclass="0x030200"/>' for peer, n in mine.items()]
        head = f'<pci busid="0000:0{dev}:00.0" class="0x030200" device="0x1db5" link_speed="8 GT/s" link_width="16">'
        lines += [head, f'<gpu dev="{dev}" sm="70">', *links, "</gpu></pci>"]
    return "\n".join([*lines, "</cpu></system>"])


def matrix(cell: str = "NV18", gpus: int = 8, nics: int = 10, near: str = "PXB") -> str:
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    lines = ["\t\x1b[4m" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"]
    for row, name in enumerate(names):
        cells = []
        for column in range(len(names)):
            both_gpus, other = max(row, column) < gpus, abs(row - column)
            cells.append(" X " if row == column else cell if both_gpus else near if other == gpus else "SYS")
        lines.append("\t".join([name, *cells, "0-55", "0", "", "N/A"] if row < gpus else [name, *cells]))
    return "\n".join([*lines, "", "Legend:", "  X    = Self", "NIC Legend:", "  NIC0: mlx5_0", ""])
