"""One site in every form a file may tell it: 4 leaves of 4 nodes under two spines."""

import json

NODES = [f"n{i:02d}" for i in range(16)]
SLURM = "# tree\n" + "".join(f"SwitchName=leaf{i} Nodes=n[{4 * i:02d}-{4 * i + 3:02d}]\n" for i in range(4))
SLURM += "SwitchName=spine Switches=leaf[0-3] LinkSpeed=1\n"
BLOCKS = "BlockName=b1 Nodes=n[00-07]\nBlockName=b2 Nodes=n[08-15]\nBlockSizes=8,16\n"
YAML = """- topology: tree
  cluster_default: true
  tree:
    switches:
      - switch: spine
        children: leaf[0-3]
      - {switch: leaf0, nodes: "n[00-03]"}
      - {switch: leaf1, nodes: "n[04-07]"}
      - {switch: leaf2, nodes: "n[08-11]"}
      - {switch: leaf3, nodes: "n[12-15]"}
- topology: flat
  flat: true
"""
TABLE = "node,rail,leaf,spine\n" + "".join(f"n{i:02d},0,leaf{i // 4},spine\n" for i in range(16))


def ibnetdiscover() -> str:
    """Two cards a node, both on its leaf; every leaf on both spines."""
    spines = [f"S-{0xA0 + i:016x}" for i in range(2)]
    leaves = [f"S-{0xB0 + i:016x}" for i in range(4)]
    cards = {f"H-{0x100 + 2 * i + card:016x}": (i, card) for i in range(16) for card in range(2)}
    text = ["# Topology file: generated on Mon Nov 16 10:00:00 2026", ""]
    for number, guid in enumerate(spines):
        text += [
            f"switchguid=0x{guid[2:]}",
            f'Switch\t64 "{guid}"\t\t# "MF0;spine{number}:MQM9700/U1" base port 0 lid 9',
        ]
        text += [f'[{p + 1}]\t"{leaf}"[{40 + number}]\t\t# "leaf" lid 4 4xNDR' for p, leaf in enumerate(leaves)] + [""]
    for number, guid in enumerate(leaves):
        text += [f'Switch\t64 "{guid}"\t\t# "MF0;leaf{number}:MQM9700/U1" base port 0 lid 9']
        mine = [card for card, (node, _) in cards.items() if node // 4 == number]
        text += [f'[{p + 1}]\t"{card}"[1](1)\t\t# "node HCA" lid 7 4xNDR' for p, card in enumerate(mine)]
        text += [f'[{40 + s}]\t"{spine}"[{number + 1}]\t\t# "spine" lid 9 4xNDR' for s, spine in enumerate(spines)]
        text += [""]
    for card, (node, which) in cards.items():
        text += [f"caguid=0x{card[2:]}", f'Ca\t1 "{card}"\t\t# "n{node:02d} mlx5_{which}"']
        text += [f'[1](1)\t"{leaves[node // 4]}"[{which + 1}]\t\t# lid 7 lmc 0 "leaf" lid 4 4xNDR', ""]
    return "\n".join(text)


def ufm() -> str:
    """Two cards a node, whose GUIDs are their own."""
    links = [_link(f"leaf{i}:40", f"spine{s}:{i + 1}") for i in range(4) for s in range(2)]
    links += [
        _link(f"n{i:02d} mlx5_{card}", f"leaf{i // 4}:{2 * i + card + 1}") for i in range(16) for card in range(2)
    ]
    links += [_link("Mellanox Technologies Aggregation Node", "leaf0:41")]
    return json.dumps(links)


def _link(source: str, destination: str) -> dict[str, str]:
    return {
        "source_guid": source.encode().hex(), "source_port_node_description": source, "width": "4x",
        "destination_guid": destination.encode().hex(), "destination_port_node_description": destination,
    }  # fmt: skip


FORMS = {
    "topology.conf": SLURM, "topology.yaml": YAML, "ib.txt": ibnetdiscover(), "ufm.json": ufm(), "nodes.csv": TABLE,
}  # fmt: skip
