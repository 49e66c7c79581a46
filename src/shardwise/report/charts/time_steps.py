"""A pipeline in whole time steps: stages from top to bottom, steps from left to right."""

from collections.abc import Sequence
from html import escape


def time_steps(steps: Sequence[tuple[str, Sequence[str], float]], stages: int) -> str:
    """Who works in each whole time step. `steps`: name, task of each stage, share of stages at work, drawn below."""
    wide, tall, left = 46, 26, 70
    width, rows = left + wide * len(steps) + 10, stages
    parts = [f'<svg viewBox="0 0 {width} {tall * (rows + 1) + 70}" width="{width}" role="img" '
             f'aria-label="who works in each time step" font-size="12">']  # fmt: skip
    parts += [f'<text x="4" y="{tall * at + 38}" fill="currentColor">stage {at}</text>' for at in range(rows)]
    for at, (name, tasks, share) in enumerate(steps):
        x = left + wide * at
        parts.append(f'<text x="{x + 4}" y="14" fill="currentColor">{name}</text>')
        for stage, task in enumerate(tasks):
            ink = "var(--task-backward, #e69f00)" if task.startswith("B") else "var(--task-forward, #0072b2)"
            fill = ink if task else "none"
            box = f'x="{x}" y="{tall * stage + 20}" width="{wide - 3}" height="{tall - 3}"'
            parts.append(f'<rect {box} fill="{fill}" fill-opacity="0.55" stroke="currentColor" stroke-opacity="0.25"/>')
            parts.append(f'<text x="{x + 3}" y="{tall * stage + 37}" fill="currentColor">{escape(task)}</text>')
        high = 36 * share
        y = tall * rows + 64 - high
        parts.append(
            f'<rect x="{x}" y="{y}" width="{wide - 3}" height="{high}" fill="currentColor" fill-opacity="0.3"/>'
        )
        parts.append(f'<text x="{x + 3}" y="{tall * rows + 80}" fill="currentColor">{share:.0%}</text>')
    return "".join([*parts, "</svg>"])
