"""Colours of the page as CSS variables: those of the charts, by day and lightened for the night."""

from shardwise.report.charts.ink import ALARM, FONT, HEAT, PALETTE, RAMP, at_night, between
from shardwise.report.timeline_figure import COLOURS
from shardwise.step.simulate.timeline import MEMORY

RAMP_AT_NIGHT = ((171, 130, 220), (110, 150, 220), (64, 184, 178), (130, 219, 133), (236, 222, 110))
"""the hues of `RAMP` in their order, light enough for a dark page"""
HEAT_AT_NIGHT = ((52, 66, 82), (214, 158, 62), (255, 112, 104))
"""from what nearly vanishes to what stands out, as `HEAT` by day"""


def theme_css() -> str:
    named = {f"series-{place}": colour for place, colour in enumerate(PALETTE)}
    named |= {f"task-{kind.replace(' ', '-')}": colour for kind, colour in COLOURS.items()}
    named |= {f"memory-{kind}": PALETTE[place] for place, kind in enumerate(MEMORY)}
    named["alarm"] = ALARM
    steps = {f"ramp-{place}": between(RAMP, place / 8) for place in range(9)}
    steps |= {f"heat-{place}": between(HEAT, place / 8) for place in range(9)}
    light = _lines(named | steps)
    ordered = {f"ramp-{place}": between(RAMP_AT_NIGHT, place / 8) for place in range(9)}
    ordered |= {f"heat-{place}": between(HEAT_AT_NIGHT, place / 8) for place in range(9)}
    dark = _lines({name: at_night(colour) for name, colour in named.items()} | ordered)
    return (
        f":root {{\n  --font: {FONT};\n{light}}}\n"
        f"@media (prefers-color-scheme: dark) {{\n:root:not([data-theme='light']) {{\n{dark}}}\n}}\n"
        f":root[data-theme='dark'] {{\n{dark}}}\n"
    )


def _lines(named: dict[str, str]) -> str:
    return "".join(f"  --{name}: {colour};\n" for name, colour in named.items())
