"""Habits of training loops: devices by number, questions about GPUs, logs, arguments, files from elsewhere."""

import json

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.trace.capture import traced  # noqa: E402
from shardwise.show.cli import main  # noqa: E402

LOOP = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
{before}
rank = int(os.environ["LOCAL_RANK"])
model = nn.Linear(32, 5).to(rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x, y = torch.randn(8, 32).to(rank), torch.randint(0, 5, (8,), device=rank)
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    loss.backward()
{inside}
    optimizer.step()
    optimizer.zero_grad()
"""


def traced_loop(tmp_path, inside: str = "pass", before: str = "", arguments: tuple[str, ...] = ()):
    path = tmp_path / "train.py"
    path.write_text(LOOP.format(before=before, inside="\n".join(f"    {line}" for line in inside.splitlines())))
    return traced(path, 8, arguments=arguments)


@pytest.mark.parametrize(
    "before",
    [
        "assert torch.cuda.is_available()",
        "device = torch.accelerator.current_accelerator()\nassert device.type == 'cuda'\ntorch.ones(1, device=device)",
        "assert torch.cuda.get_device_properties(0).major == 9 and torch.cuda.mem_get_info()[1] > 0",
        "with torch.cuda.device(0), torch.cuda.nvtx.range('start'):\n    torch.ones(1).to(device=0)",
        "a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))\na.record()\nassert a.elapsed_time(b) > 0",
    ],
)
def test_a_script_finds_the_gpus_it_asks_for(before, tmp_path) -> None:
    assert traced_loop(tmp_path, before=before).events


def test_a_library_in_the_folder_of_the_script_finds_none(tmp_path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library.py").write_text("import torch\nFOUND = torch.cuda.is_available()\n")
    traced_loop(tmp_path, before=f"sys.path.insert(0, {str(folder)!r})\nfrom library import FOUND\nassert not FOUND")


@pytest.mark.parametrize(
    "inside",
    [
        "assert f'{loss:.2f}' == '1.00'",
        "assert (out.argmax(1) == y).sum().item() == 2",
        "assert (out > 0).sum().item() == 40",
        "assert torch.isnan(out).sum().item() == 0",
        "if not torch.isfinite(loss): sys.exit(1)",
        "if torch.isnan(loss) or loss.isinf(): sys.exit(1)",
        "if not loss.isfinite().all(): sys.exit(1)",
    ],
)
def test_what_a_loop_logs_and_looks_out_for_does_not_stop_it(inside, tmp_path) -> None:
    assert traced_loop(tmp_path, inside).numbers_read > 0


def test_arguments_stand_behind_two_dashes(tmp_path, capsys) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import argparse\nasked = argparse.ArgumentParser()\nasked.add_argument('--width', type=int, required=True)\n"
        "width = asked.parse_args().width\n" + LOOP.format(before="", inside="    pass").replace("32", "width")
    )
    assert main(["trace", str(path), "--world", "8", "--json", "--", "--width", "48"]) == 0
    assert json.loads(capsys.readouterr().out)["flops"]["forward"] == 2 * 8 * 48 * 5
    assert main(["trace", str(path), "--world", "8"]) == 2
    assert "write its arguments behind `--`" in capsys.readouterr().err


def test_a_file_from_elsewhere_is_told_to_be_left_out(tmp_path) -> None:
    before = "raise OSError(\"We couldn't connect to 'https://hub.example' to load the files\")"
    with pytest.raises(ValueError, match=r"train.py line 5.*a trace needs no weights and no data"):
        traced_loop(tmp_path, before=before)


def test_a_step_that_trains_nothing_is_told(tmp_path, capsys) -> None:
    path = tmp_path / "own.py"
    path.write_text("import torch\ndef build():\n    return torch.nn.Linear(4, 4)\n"
                    "def step(model):\n    with torch.no_grad():\n        model(torch.ones(2, 4))\n")  # fmt: skip
    assert main(["trace", str(path), "--world", "1", "--json"]) == 0
    assert "the step has no backward pass and no optimizer step" in json.loads(capsys.readouterr().out)["notes"]


def test_a_script_that_starts_its_ranks_itself_starts_this_one(tmp_path) -> None:
    path = tmp_path / "train.py"
    body = LOOP.format(before="", inside="    pass").replace('int(os.environ["LOCAL_RANK"])', "given")
    lines = ["def ranked(given, world):", *(f"    {line}" for line in body.splitlines())]
    lines += ["import torch, torch.multiprocessing as mp", "if __name__ == '__main__':",
              "    mp.spawn(ranked, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())"]  # fmt: skip
    path.write_text("\n".join(lines))
    assert traced(path, 8).events


def test_places_in_data_are_drawn_and_pinned(tmp_path) -> None:
    inside = "at = torch.randint(90, (4,))\n" \
             "rows = torch.stack([torch.ones(100)[i : i + 10] for i in at]).pin_memory().to('cuda')\n" \
             "assert rows.shape == (4, 10)\nint(torch.empty((), dtype=torch.int64).random_().item())"  # fmt: skip
    assert traced_loop(tmp_path, inside).events


def test_ranks_that_train_alone_are_told(tmp_path, capsys) -> None:
    path = tmp_path / "train.py"
    path.write_text(LOOP.format(before="", inside="    pass"))
    assert main(["trace", str(path), "--world", "8", "--json"]) == 0
    assert "the step sends nothing: each of the 8 ranks trains alone" in json.loads(capsys.readouterr().out)["notes"]


def test_devices_by_name_and_by_number_are_the_same(tmp_path) -> None:
    inside = (
        "a = torch.ones(2, device=torch.device('cuda', rank)) + torch.ones(2, device='cuda')\na.to('cuda:3') + y[:2]"
    )
    assert traced_loop(tmp_path, inside).events


def test_trouble_inside_a_library_of_the_same_name_is_placed_in_the_script(tmp_path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.py").write_text("\n" * 50 + "def fails():\n    raise ValueError('no')\n")
    (tmp_path / "other" / "__init__.py").write_text("")
    with pytest.raises(ValueError, match=r"train.py line 5, in <module>: ValueError: no"):
        traced_loop(tmp_path, before="from other.train import fails; fails()")
