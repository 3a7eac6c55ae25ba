"""Draws the curves of training logs as an SVG: python3 -m train.plot OUT.svg LOG.jsonl [LOG.jsonl ...]"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 940, 250, 62, 34, 70
COLORS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"]
SHOWN = ["chat", "arithmetic off", "arithmetic thinking", "sort_words", "sort_numbers", "quote", "json", "tools", "images", "needle"]
DRAFTED = ["hit1", "hit2", "hit3", "hit4", "hit5"]


def read(paths):
    """-> training, document and draft events with the seconds of all runs added up, ends of runs"""
    training, documents, drafts, ends, offset = [], [], [], [], 0.0
    for path in paths:
        last = 0.0
        with open(path, encoding="utf-8") as file:
            for line in file:
                event = json.loads(line)
                last = event["second"]
                if event["event"] == "train":
                    training.append((offset + last, event))
                elif event["event"] == "documents right":
                    documents.append((offset + last, event))
                elif event["event"] == "draft":
                    drafts.append((offset + last, event))
        offset += last
        ends.append(offset)
    return training, documents, drafts, ends


class Panel:
    def __init__(self, place, title, longest, low, high, logarithmic):
        self.top, self.longest, self.low, self.high, self.logarithmic = TOP + place * (HEIGHT + GAP), longest, low, high, logarithmic
        self.parts = [f'<text x="{LEFT}" y="{self.top - 12}" font-size="15">{title}</text>',
                      f'<rect x="{LEFT}" y="{self.top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#444"/>']

    def x(self, second):
        return LEFT + WIDTH * second / self.longest

    def y(self, value):
        value = min(max(value, self.low), self.high)
        scale = math.log if self.logarithmic else float
        return self.top + HEIGHT * (1 - (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low)))

    def axis(self, ticks, ends):
        for value in ticks:
            y = self.y(value)
            self.parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                              f'<text x="{LEFT - 8}" y="{y + 4:.1f}" font-size="12" text-anchor="end">{value:g}</text>')
        for second in range(0, int(self.longest), 200):
            self.parts.append(f'<text x="{self.x(second):.1f}" y="{self.top + HEIGHT + 16}" font-size="12" text-anchor="middle">{second} s</text>')
        for end in ends[:-1]:
            self.parts.append(f'<line x1="{self.x(end):.1f}" x2="{self.x(end):.1f}" y1="{self.top}" y2="{self.top + HEIGHT}" stroke="#888" stroke-dasharray="4 4"/>')

    def curve(self, number, label, points):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{self.x(second):.1f},{self.y(value):.1f}" for second, value in points)
        y = self.top + 14 + 17 * number
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>'
                          f'<text x="{LEFT + WIDTH + 10}" y="{y}" font-size="12" fill="{color}">{label}</text>')


def main(out, *paths):
    training, documents, drafts, ends = read(paths)
    loss = Panel(0, "answer loss, and index loss (per token, mean of 10 s)", ends[-1], 0.0005, 10, True)
    loss.axis([0.001, 0.01, 0.1, 1, 10], ends)
    for number, name in enumerate(("answer_loss", "index_loss")):
        loss.curve(number, name.replace("_", " "), [(second, event[name]) for second, event in training])
    right = Panel(1, "fresh documents right as a whole, percent (every token of every answer)", ends[-1], 0, 100, False)
    right.axis([0, 20, 40, 60, 80, 100], ends)
    for number, name in enumerate(SHOWN):
        right.curve(number, name, [(second, event[name]) for second, event in documents])
    right.curve(len(SHOWN), "needle to 30,000", [(second, event["needle_long"]) for second, event in documents if "needle_long" in event])
    draft = Panel(2, "drafts right, percent, by place in the block (all before it right)", ends[-1], 0, 100, False)
    draft.axis([0, 20, 40, 60, 80, 100], ends)
    for number, name in enumerate(DRAFTED):
        draft.curve(number, name, [(second, 100 * event[name]) for second, event in drafts])
    height = TOP + 3 * (HEIGHT + GAP)
    with open(out, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 170}" height="{height}" font-family="sans-serif">\n'
                   '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(loss.parts + right.parts + draft.parts) + "\n</svg>\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
