"""The same kind of cluster in another size."""

import pytest

from shardwise.spec.dump import to_yaml
from shardwise.spec.load import cluster_of
from shardwise.spec.sizes import sizes_of


@pytest.mark.parametrize(
    ("text", "name", "step"),
    [("dgx-h100", "dgx-h100:64", 8), ("dgx-h100:1024", "dgx-h100:64", 8), ("h100", "64xh100", 8),
     ("8xh100", "64xh100", 8), ("4x4xh100", "16x4xh100", 4), ("gb200-nvl72", "gb200-nvl72:64", 64)],
)  # fmt: skip
def test_another_size_is_what_the_user_would_write(text, name, step):
    sizes = sizes_of(text)
    assert sizes.name_at(64) == name
    assert sizes.at(64) == cluster_of(name)
    assert sizes.step == step
    assert sizes.doubling(1, 256)[:2] == [step, 2 * step]
    assert max(sizes.doubling(1, 10**9)) <= sizes.most


def test_a_file_keeps_its_levels(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(to_yaml(cluster_of("dgx-h100:64")))
    sizes = sizes_of(str(path))
    assert (sizes.at(16).gpus, sizes.at(16).name) == (16, "dgx-h100:16")
    assert sizes.at(16).levels == cluster_of("dgx-h100:64").levels


@pytest.mark.parametrize("text", ["", "dgx-h1000", "h1000", "dgx-h100:", "0xh100", "nothing.yaml"])
def test_bad_text(text):
    with pytest.raises((ValueError, OSError)):
        sizes_of(text)


def test_no_half_nodes():
    with pytest.raises(ValueError, match="multiple of 4"):
        sizes_of("4x4xh100").at(18)
