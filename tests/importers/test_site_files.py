"""Every form of file tells the same site; a damaged one is refused in a line that says what to write."""

import pytest
from site_files import BLOCKS, FORMS, NODES, SLURM, YAML

from shardwise.fabric.hostlist import hostlist, hosts_of
from shardwise.programs.importers.site_file import free_nodes, site_from


def read(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return site_from(path)


@pytest.mark.parametrize("name", FORMS)
def test_all_forms_tell_the_same_site(tmp_path, name):
    site = read(tmp_path, name, FORMS[name])
    order = site.numbers(NODES, "free")
    assert sorted(site.nodes) == NODES
    assert [level.name for level in site.network] == ["leaf", "spine"]
    leaf, spine = site.network
    assert [len(set(leaf.block[order[i : i + 4]].tolist())) for i in range(0, 16, 4)] == [1] * 4
    assert (len(leaf.names), len(spine.names)) == (4, 1)


def test_switches_keep_their_names(tmp_path):
    assert read(tmp_path, "topology.conf", SLURM).levels[0].names == ("leaf0", "leaf1", "leaf2", "leaf3")
    assert read(tmp_path, "ib.txt", FORMS["ib.txt"]).levels[0].names[0].startswith("leaf0")


def test_blocks_are_domains(tmp_path):
    site = read(tmp_path, "topology.conf", BLOCKS)
    assert site.domain is not None
    assert site.domain.names == ("b1", "b2")
    assert site.network == (site.domain,)


def test_racks_are_no_switches_where_leaves_are_told(tmp_path):
    rows = "".join(f"n{i},r{i // 2},l{i // 4}\n" for i in range(8))
    site = read(tmp_path, "nodes.csv", "node,rack,leaf\n" + rows)
    assert [level.name for level in site.network] == ["leaf"]
    assert site.domain is not None
    assert len(site.domain.names) == 4


@pytest.mark.parametrize(("name", "text", "told"), [
    ("topology.conf", SLURM + "SwitchName=other Switches=missing\n", "'missing' of 'other' is described nowhere"),
    ("topology.conf", SLURM + "SwitchName=leaf0 Nodes=n99\n", "line 7: switch 'leaf0' is there already"),
    ("topology.conf", SLURM.replace("n[00-03]", "n[00-"), "brackets that do not match"),
    ("topology.conf", SLURM.replace("Nodes=n[00-03]", "Nods=n[00-03]"), "line 2: 'nods' is not understood"),
    ("topology.conf", "SwitchName=a Switches=b\nSwitchName=b Switches=a,c\nSwitchName=c Nodes=n1\n", "above itself"),
    ("topology.conf", SLURM.replace("n[00-03]", "n[000000-999999]"), "more than 65,536 hosts"),
    ("topology.conf", BLOCKS + SLURM, "switches and blocks"),
    ("topology.conf", BLOCKS.replace("n[08-15]", "n[07-15]"), "'n07' lies in two blocks"),
    ("topology.yaml", YAML.replace("tree:", "tee:"), "block"),
    ("ib.txt", FORMS["ib.txt"][:900], "is joined but not described; is the file whole?"),
    ("ufm.json", FORMS["ufm.json"][:-5], "is not JSON"),
    ("ufm.json", '{"systems": []}', "links: None is not a list; write the list that UFM answers"),
    ("ufm.json", '[{"source_guid": "1"}]', "source_port_node_description is missing"),
    ("ufm.json", '[{"source_port_node_description": "a:1", "destination_port_node_description": "b:1"}]', "no host"),
    ("nodes.csv", "node,shelf\na,b\n", "column 'shelf' is unknown"),
    ("nodes.csv", "node,leaf\na,b\na,c\n", "listed twice"),
    ("nodes.csv", "node,leaf\na\n", "row 2"),
    ("nodes.csv", "node,leaf,spine\na,l1,s1\nb,l1,s2\n", "lies in two blocks of spine"),
    ("words.txt", "hello\n", "none of the files that are read"),
])  # fmt: skip
def test_a_damaged_file_is_refused_in_one_line(tmp_path, name, text, told):
    with pytest.raises(ValueError, match="topology") as refused:
        read(tmp_path, name, text)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_host_lists_are_slurms():
    names = hosts_of("node[001-003,020],r[0-1]n[1-2],login", "free")
    assert names == ["node001", "node002", "node003", "node020", "r0n1", "r0n2", "r1n1", "r1n2", "login"]
    assert hostlist(names) == "login,node[001-003,020],r0n[1-2],r1n[1-2]"
    assert hosts_of(hostlist(names), "free") == [names[-1], *names[:-1]]
    for wrong in ("node[3-1]", "node[", "a,a", "node[1-x]", "n$de"):
        with pytest.raises(ValueError, match="free: "):
            hosts_of(wrong, "free")


def test_free_nodes_from_a_file(tmp_path):
    site = read(tmp_path, "topology.conf", SLURM)
    (tmp_path / "idle").write_text("n[00-01]  # rack 1\n\nn07\n")
    assert free_nodes(str(tmp_path / "idle"), site) == ["n00", "n01", "n07"]
    assert free_nodes("all", site) == NODES
    with pytest.raises(ValueError, match=r"free: 'n99' is not in the topology"):
        site.numbers(["n99"], "free")
