"""Pictures of a terminal's screen, as SVG."""

from html import escape
from itertools import groupby

BACKGROUND, TEXT = "#1e1e1e", "#d4d4d4"
COLOURS = {
    "black": "#5c6370", "red": "#e06c75", "green": "#98c379", "brown": "#d19a66", "blue": "#61afef",
    "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#d4d4d4", "default": TEXT,
}
LIKE = {"⎿": "└", "⏸": "‖"}
"""Signs that few fonts have, and signs that look like them."""

WIDTH, HEIGHT, MARGIN = 8.4, 18, 12
"""Of a character and of the edge, in pixels."""


def lines(screen):
    """The characters of a screen with their colours. Of several empty lines one is kept."""
    rows = [[screen.buffer[row][column] for column in range(screen.columns)] for row in range(screen.lines)]
    texts = ["".join(cell.data for cell in row).strip() for row in rows]
    rows = [row for number, row in enumerate(rows) if texts[number] or number and texts[number - 1]]
    if not texts[-1]:
        rows.pop()
    return [[(cell.data, colour(cell), cell.bold) for cell in row] for row in rows]


def colour(cell):
    name = cell.bg if cell.reverse and cell.bg != "default" else cell.fg
    return COLOURS.get(name.replace("bright", ""), f"#{name}")


def svg(rows):
    """A picture of these lines. Each run of one colour has a length, so that columns stand where they belong."""
    columns = max(len(row) for row in rows)
    width, height = columns * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN
    parts = []
    for number, row in enumerate(rows):
        column = 0
        for (fill, bold), run in groupby(row, key=lambda cell: cell[1:]):
            cells = [cell[0] for cell in run]
            text = "".join(LIKE.get(cell, cell) for cell in cells)
            if text.strip():
                begin = len(text) - len(text.lstrip())
                x = MARGIN + (column + begin) * WIDTH
                y = MARGIN + number * HEIGHT + 13
                shown = text.strip()
                weight = ' font-weight="bold"' if bold else ""
                parts.append(
                    f'<text x="{x:.1f}" y="{y}" fill="{fill}"{weight} textLength="{len(shown) * WIDTH:.1f}" '
                    f'lengthAdjust="spacingAndGlyphs">{escape(shown)}</text>'
                )
            column += len(cells)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
        f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14" style="white-space:pre">\n'
        f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>\n{body}\n</svg>\n'
    )
