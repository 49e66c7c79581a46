"""Colours and type of every chart: told apart by all kinds of colour vision, on white, in print."""

INK, GREY, GRID, PALE, ALARM = "#22262b", "#5b6068", "#dfe3e8", "#eef1f4", "#c1121f"
PALETTE = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#ee8866", "#44bb99", "#994455", "#222222",
           "#004488", "#999933")  # fmt: skip
"""Tol's bright set, then further hues; lines beyond them are dashed"""
DASHES = ("", "6 3", "2 3")
RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (200, 176, 32))
"""viridis without its palest end, which white swallows: for things in order"""
HEAT = ((221, 232, 242), (240, 180, 70), (193, 18, 31))
"""from pale blue over amber to red: for loads"""
WHITE, DARK = (255, 255, 255), (24, 28, 34)
ON_HUE = "#1a1f25"
"""of words on a light hue, by day and by night"""
NIGHT = {ON_HUE: ON_HUE, INK: "#e9ecf0", GREY: "#a5aeb9", GRID: "#2d343d", PALE: "#262c34",
         "#fff": "#181c22", "#ffffff": "#181c22"}  # fmt: skip
"""what is not a hue, on a dark page"""
LIGHTER = 0.22
"""how far towards white a hue goes at night"""
DARKEST, PALEST = 0.35, 0.6
"""below this lightness a colour would vanish at night and turns into a light grey; above it, it would glare"""
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"
LETTER = 0.58
"""width of a letter over its size, about: there is no font to ask"""
BOLD_LETTER = 0.64


def colour_of(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def dash_of(index: int) -> str:
    return DASHES[index // len(PALETTE) % len(DASHES)]


def between(stops: tuple[tuple[int, int, int], ...], share: float) -> str:
    """The colour at a share from 0 to 1 of a way through `stops`."""
    place = (len(stops) - 1) * min(max(share, 0.0), 1.0)
    low = min(int(place), len(stops) - 2)
    mixed = (round(a + (place - low) * (b - a)) for a, b in zip(stops[low], stops[low + 1], strict=True))
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def in_order(number: int, count: int) -> str:
    """The colour of the number-th of so many in order, such as the stages of a pipeline."""
    return between(RAMP, number / max(count - 1, 1))


def at_night(colour: str) -> str:
    """The same hue, lighter: dark colours on a dark page could not be told from it; pale ones darker, near the page."""
    if colour in NIGHT:
        return NIGHT[colour]
    parts = (int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16))
    if max(parts) / 255 < DARKEST:
        return "#c9ced6"
    if min(parts) / 255 > PALEST:
        return between((parts, DARK), 0.75)
    return between((parts, WHITE), LIGHTER)


def width_of(words: str, size: float = 12.0, *, bold: bool = False) -> float:
    """Pixels that words take, about."""
    return (BOLD_LETTER if bold else LETTER) * size * len(words)
