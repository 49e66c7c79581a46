"""Constants of QR and eigenvectors in cost/gpu.py, from every second side of evidence/matrix/h200-factors.csv; errors
of the others. `python evidence/fit_factors.py`

Seconds = side x column_s + side² x bytes / bandwidth for QR, whose columns each pass over a panel of it; the second
term is 9 side³ FLOPs at a share of the fp32 peak for eigenvectors. cuSOLVER has another method for eigenvectors of
sides up to 512, which are left out.
"""

import csv
from pathlib import Path

import numpy as np

from shardwise.cost.gpu import curve_of
from shardwise.spec.load import gpu_of

TABLE = Path(__file__).parent / "matrix" / "h200-factors.csv"


def main() -> None:
    curve, rows = curve_of(gpu_of("h200")), list(csv.DictReader(TABLE.read_text().splitlines()))
    for kind in ("qr", "eigh"):
        mine = [(float(r["rows"]), 1e-3 * float(r["ms"])) for r in rows if r["what"] == kind]
        side, seconds = np.array([row for row in mine if kind == "qr" or row[0] > 512]).T
        unit = side**2 / curve.bandwidth if kind == "qr" else 9.0 * side**3 / curve.gemm_law("fp32").peak
        terms = np.stack([side, unit], 1) / seconds[:, None]
        found = np.linalg.lstsq(terms[::2], np.ones(len(terms[::2])), rcond=None)[0]
        error = np.abs(terms @ found - 1.0)
        name, value = ("bytes", found[1]) if kind == "qr" else ("share", 1.0 / found[1])
        print(
            f"{kind}: column_s {found[0]:.3g}, {name} {value:.4g}; fitted on {len(error[::2])} sides to "
            f"{error[::2].mean():.1%}, {error[1::2].mean():.1%} on the {len(error[1::2])} others"
        )


if __name__ == "__main__":
    main()
