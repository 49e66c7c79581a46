"""MFU against what a fabric costs: every fabric tried as a dot, the cheapest good ones marked."""

import math
from collections.abc import Sequence

from shardwise.report.fabric_budget import Candidate, cheapest
from shardwise.report.fabric_svg import GREY, GRID, INK, svg_of

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 64, 24, 24, 48
COLOURS = ("#4477aa", "#aa3377", "#228833", "#ccbb44")


def budget_svg(rows: Sequence[Candidate], within: float) -> str:
    most = max(r.usd_per_gpu for r in rows)
    low, high = 0.95 * min(r.mfu for r in rows), 1.02 * max(r.mfu for r in rows)
    best = max(r.mfu for r in rows)
    domains = sorted({r.domain_gpus for r in rows})

    def x(usd: float) -> float:
        return LEFT + usd / (1.05 * most) * (WIDTH - LEFT - RIGHT)

    def y(mfu: float) -> float:
        return HEIGHT - BOTTOM - (mfu - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    body = [
        f'<line x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH - RIGHT}" y2="{HEIGHT - BOTTOM}" stroke="{INK}"/>',
        f'<line x1="{LEFT}" y1="{y(best * (1 - within)):.1f}" x2="{WIDTH - RIGHT}" y2="{y(best * (1 - within)):.1f}" '
        f'stroke="#c1121f" stroke-dasharray="5 4"/>',
        f'<text x="{WIDTH - RIGHT}" y="{y(best * (1 - within)) - 5:.1f}" text-anchor="end" fill="#c1121f">'
        f"within {within:.1%} of the best</text>",
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 10}" text-anchor="middle" fill="{GREY}">'
        "US dollars of network and NVLink per GPU</text>",
    ]
    body += [
        f'<text x="{x(usd):.1f}" y="{HEIGHT - 30}" text-anchor="middle" fill="{GREY}">{usd:,.0f}</text>'
        for usd in _round_steps(most)
    ]
    for part in range(5):
        mfu = low + (high - low) * part / 4
        body.append(f'<text x="{LEFT - 6}" y="{y(mfu) + 4:.1f}" text-anchor="end" fill="{GREY}">{mfu:.0%}</text>')
        body.append(f'<line x1="{LEFT}" y1="{y(mfu):.1f}" x2="{WIDTH - RIGHT}" y2="{y(mfu):.1f}" stroke="{GRID}"/>')
    chosen = cheapest(list(rows), within)
    body += [_dot(r, x(r.usd_per_gpu), y(r.mfu), domains.index(r.domain_gpus), r in chosen) for r in rows]
    for place, domain in enumerate(domains):
        body.append(f'<circle cx="{LEFT + 12 + place * 150}" cy="12" r="4" fill="{COLOURS[place % len(COLOURS)]}"/>')
        body.append(f'<text x="{LEFT + 22 + place * 150}" y="16">NVLink domain {domain}</text>')
    return svg_of(WIDTH, HEIGHT, "MFU against the cost of the fabric", body)


def _round_steps(most: float) -> list[float]:
    """0 and round numbers up to the largest: steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(most, 1.0)))
    step = next(power * part for part in (0.1, 0.2, 0.5, 1.0, 2.0) if most / (power * part) <= 6)
    return [step * number for number in range(int(most / step) + 1)]


def _dot(row: Candidate, x: float, y: float, colour: int, chosen: bool) -> str:
    told = (
        f"{row.card_bytes_per_s * 8 / 1e9:,.0f} Gb/s cards, {row.oversubscription:g}:1, rails {row.rails}, "
        f"NVLink domain {row.domain_gpus}: {row.usd_per_gpu:,.0f} USD, MFU {row.mfu:.1%}"
    )
    ring = 'stroke="#c1121f" stroke-width="2.5" r="7"' if chosen else 'r="4"'
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" {ring} fill="{COLOURS[colour % len(COLOURS)]}" fill-opacity="0.75">'
        f"<title>{told}</title></circle>"
    )
