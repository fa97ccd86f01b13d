"""Line plots as small SVG files that read on light and dark pages, without a plotting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
WIDTH, HEIGHT, GAP, MARGIN = 300, 220, 70, 46


def curves(panels: Mapping[str, Mapping[str, Sequence[float]]], x: str, y: str) -> str:
    """One panel for each table of curves, side by side, the same colour for a curve's name in all of them."""
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    total = MARGIN + len(panels) * (WIDTH + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {HEIGHT + 110}" font-family="sans-serif" '
        'font-size="12"><style>text{fill:#555}line,rect{stroke:#999}path{fill:none;stroke-width:1.6}'
        "@media(prefers-color-scheme:dark){text{fill:#bbb}}</style>"
    ]
    for number, (title, panel) in enumerate(panels.items()):
        parts.append(_panel(title, panel, colours, MARGIN + number * (WIDTH + GAP), x, y))
    for number, (name, colour) in enumerate(colours.items()):
        left = MARGIN + 90 * number
        parts.append(f'<path d="M{left},{HEIGHT + 92}h24" stroke="{colour}"/>')
        parts.append(f'<text x="{left + 30}" y="{HEIGHT + 96}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    title: str, panel: Mapping[str, Sequence[float]], colours: Mapping[str, str], left: float, x: str, y: str
) -> str:
    values = sorted(value for curve in panel.values() for value in curve)
    low, high = values[len(values) // 10], values[-1]  # the steep first epochs would flatten all the rest
    low = low - 0.1 * (high - low) if high > low else low - 0.5
    longest = max(len(curve) for curve in panel.values())
    parts = [
        f'<rect x="{left}" y="30" width="{WIDTH}" height="{HEIGHT}" fill="none"/>',
        f'<text x="{left}" y="20" font-weight="bold">{escape(title)}</text>',
        f'<text x="{left + WIDTH / 2}" y="{HEIGHT + 62}" text-anchor="middle">{escape(x)}</text>',
        f'<text transform="translate({left - 34},{30 + HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y)}</text>",
    ]
    for step in range(5):
        value, place = low + (high - low) * step / 4, 30 + HEIGHT * (1 - step / 4)
        parts.append(f'<text x="{left - 4}" y="{place + 4:.1f}" text-anchor="end" font-size="10">{value:.3f}</text>')
        parts.append(
            f'<text x="{left + WIDTH * step / 4:.1f}" y="{HEIGHT + 44}" text-anchor="middle" font-size="10">'
            f"{round(longest * step / 4)}</text>"
        )
    for name, curve in panel.items():
        heights = [30 + HEIGHT * (1 - (max(value, low) - low) / (high - low)) for value in curve]
        points = [f"{left + WIDTH * n / longest:.1f},{height:.1f}" for n, height in enumerate(heights, 1)]
        parts.append(f'<path d="M{"L".join(points)}" stroke="{colours[name]}"><title>{escape(name)}</title></path>')
    return "\n".join(parts)
