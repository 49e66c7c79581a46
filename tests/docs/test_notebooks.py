"""The notebooks of `examples/` run from top to bottom, and their results show themselves."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks are executed by nbclient: pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="notebooks are executed by nbclient: pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="notebooks are executed by nbclient: pip install nbclient ipykernel")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    shown = [out.data for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs if "data" in out]
    assert shown
    assert all("<svg" in data.get("text/html", "") for data in shown), "every result shows itself"
