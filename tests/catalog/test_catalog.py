import subprocess
import sys

import pytest

from shardwise import catalog


def test_names_are_the_file_names():
    assert {"h100", "a100-80", "b200", "gb200", "tpu-v5p"} <= set(catalog.names("gpus"))
    assert catalog.names("fabrics") == sorted(catalog.names("fabrics"))


@pytest.mark.parametrize("name", ["h100", "H100", " h100 ", "H100-80GB-SXM", "h100-80gb-sxm"])
def test_an_entry_is_found_by_name_or_alias_in_any_case(name):
    assert catalog.entry("gpus", name)["name"] == "h100"


def test_an_unknown_name_says_what_is_near():
    with pytest.raises(ValueError, match=r"^gpu 'h10' is unknown; did you mean 'h100'\?$"):
        catalog.entry("gpus", "h10")


def test_a_name_far_from_all_lists_all():
    with pytest.raises(ValueError, match=r"fabric '@@' is unknown; known: aws-p4d, .*dgx-h100"):
        catalog.entry("fabrics", "@@")


@pytest.mark.parametrize("name", ["../gpus/h100", "h100.toml", "", "/etc/passwd", "a\0b"])
def test_a_name_is_never_a_path(name):
    with pytest.raises(ValueError, match="is unknown"):
        catalog.entry("gpus", name)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"'gpu' is unknown; did you mean 'gpus'\?"):
        catalog.names("gpu")


def test_changing_an_entry_does_not_change_the_catalog():
    catalog.entry("gpus", "h100")["peak"]["bf16"] = "1 TFLOP/s"
    assert catalog.entry("gpus", "h100")["peak"]["bf16"] == "989.4 TFLOP/s"


def test_importing_parses_nothing():
    code = (
        "import shardwise.catalog as c, shardwise.spec.load;"
        "c.entry('gpus', 'h100'); print(c._parsed.cache_info().currsize)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "1"
