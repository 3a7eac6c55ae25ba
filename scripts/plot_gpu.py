#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the curves of `deepinfer bench rank --set curve=1` as an SVG, as the originals publish theirs: decode over the requests
of a rank, prefill over the prompt's length; the bound of the bf16 route beside each.

    python3 scripts/plot_gpu.py RANK.csv OUT.svg
"""
import csv
import math
import re
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 760, 260, 78, 44, 84
MEASURED, BOUND = "#1f77b4", "#888888"


def read(path):
    """-> points (x, tokens/s, bound) of decode and of prefill, ascending, and the file's first line"""
    decode, prefill = {}, {}
    with open(path, encoding="utf-8") as file:
        head = file.readline().lstrip("# ").strip()
        for row in csv.DictReader(file):
            if row["unit"] != "tokens/s":
                continue
            for points, pattern in ((decode, r"decode, (\d+) requests"), (prefill, r"prefill, (\d+) tokens")):
                if found := re.match(pattern, row["case"]):
                    points[int(found[1])] = (float(row["value"]), float(row["ceiling"]))
    return sorted((x, *y) for x, y in decode.items()), sorted((x, *y) for x, y in prefill.items()), head


def panel(place, title, unit, points):
    """Both axes are logarithmic."""
    top = TOP + place * (HEIGHT + GAP)
    parts = [f'<text x="{LEFT}" y="{top - 14}" font-size="15">{title}</text>',
             f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#444"/>']
    if not points:
        return parts
    values = [v for _, *pair in points for v in pair]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    first, last = math.log2(points[0][0]), math.log2(points[-1][0])

    def x(value):
        return LEFT + 20 + (WIDTH - 40) * ((math.log2(value) - first) / (last - first) if last > first else 0.5)

    def y(value):
        return top + HEIGHT * (1 - (math.log10(value) - low) / (high - low))

    for power in range(low, high + 1):
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y(10 ** power):.1f}" y2="{y(10 ** power):.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 8}" y="{y(10 ** power) + 4:.1f}" font-size="12" text-anchor="end">{10 ** power:,}</text>')
    for column, color, dash in ((2, BOUND, ' stroke-dasharray="5 4"'), (1, MEASURED, "")):
        line = " ".join(f"{x(point[0]):.1f},{y(point[column]):.1f}" for point in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.8"{dash}/>')
    for at, value, bound in points:
        parts.append(f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="3" fill="{MEASURED}"/>'
                     f'<text x="{x(at):.1f}" y="{y(value) + 17:.1f}" font-size="11" text-anchor="middle">{value:,.0f} ({100 * value / bound:.0f} %)</text>'
                     f'<text x="{x(at):.1f}" y="{top + HEIGHT + 16}" font-size="12" text-anchor="middle">{at:,}</text>')
    parts.append(f'<text x="{LEFT + WIDTH / 2}" y="{top + HEIGHT + 34}" font-size="12" text-anchor="middle">{unit}</text>')
    return parts


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    decode, prefill, head = read(sys.argv[1])
    parts = panel(0, "Decode with drafts, tokens/s of a rank (share of the bound, dashed)", "requests of the rank", decode)
    parts += panel(1, "Prefill, tokens/s (share of the bound, dashed)", "tokens of the prompt", prefill)
    height = TOP + 2 * (HEIGHT + GAP) + 10
    parts.append(f'<text x="{LEFT}" y="{height - 6}" font-size="10" fill="#666">{head}</text>')
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif">\n'
                   '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    main()
