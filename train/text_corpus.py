"""Plain text for the tokenizer and for haystacks, taken out of unpacked Debian packages.

    python3 -m train.text_corpus FOLDER_WITH_UNPACKED_PACKAGES OUT.txt.gz

Every sub-folder of the first argument is one unpacked package, named as the package. Documents are separated by NUL.
"""
import glob
import gzip
import html
import os
import random
import re
import sys

MEGABYTE = 1_000_000
# package: (file pattern, how to read it, cap in bytes)
SOURCES = {
    "debian-reference-en": ("*.html", "html", 2 * MEGABYTE),
    "debian-reference-zh-cn": ("*.html", "html", 2 * MEGABYTE),
    "debian-faq": ("*.html", "html", MEGABYTE // 2),
    "debian-faq-zh-cn": ("*.html", "html", MEGABYTE // 2),
    "developers-reference": ("*.txt", "plain", MEGABYTE),
    "git-doc": ("*.txt", "plain", 2 * MEGABYTE),
    "fortunes-zh": ("*", "poems", 600_000),
    "manpages-zh": ("*.gz", "manual", 2_500_000),
    "dict-wn": ("*.dz", "dictionary", 2 * MEGABYTE),
}


def read_text(path):
    opener = gzip.open if path.endswith((".gz", ".dz")) else open
    with opener(path, "rb") as file:
        return file.read().decode("utf-8", "replace").replace("\ufffd", "")


def strip_html(text):
    text = re.sub(r"(?is)<(script|style|head)[^>]*>.*?</\1>", "", text)
    text = re.sub(r"(?i)<(p|br|li|div|tr|h\d|dt|dd|pre)[^>]*>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.sub(r"\n\s*\n+", "\n\n", re.sub(r"[ \t\u00a0]+", " ", text)).strip()


def strip_roff(text):
    lines = []
    for line in text.split("\n"):
        heading = re.match(r"\.(SH|SS|B|I|BR|IR|BI|TP|RB|RI|TH)\s*(.*)", line)
        if heading:
            line = heading.group(2)
        elif line.startswith((".", "'")):
            continue
        line = re.sub(r"\\f.|\\&|\\\|", "", line).replace("\\-", "-").replace("\\(co", "(c)")
        line = re.sub(r"\\.", "", line)
        if line:
            lines.append(line)
    return "\n".join(lines)


def wanted(path, kind):
    if not os.path.isfile(path) or "copyright" in path or "changelog" in path:
        return False
    if kind == "poems":
        return "/games/fortunes/" in path and not path.endswith((".dat", ".u8"))
    return kind != "manual" or "/zh_CN/" in path


def documents(folder, package):
    pattern, kind, cap = SOURCES[package]
    paths = sorted(glob.glob(f"{folder}/{package}/**/{pattern}", recursive=True))
    paths = [path for path in paths if wanted(path, kind)]
    random.Random(package).shuffle(paths)
    size = 0
    for path in paths:
        text = read_text(path)
        if kind == "html":
            text = strip_html(text)
        elif kind == "manual":
            text = strip_roff(text)
        elif kind == "poems":
            text = re.sub(r"\x1b\[[0-9;]*m", "", text)
        step = 20_000 if kind == "dictionary" else len(text) + 1
        for start in range(2 * MEGABYTE if kind == "dictionary" else 0, len(text), step):
            part = text[start:start + step]
            if len(part) >= 200 and size < cap:
                size += len(part.encode())
                yield part
    print(package, size)


def main(folder, out):
    texts = [text for package in SOURCES for text in documents(folder, package)]
    random.Random(1).shuffle(texts)
    data = "\0".join(texts).encode()
    with gzip.open(out, "wb", 9) as file:
        file.write(data)
    print(len(texts), "documents,", len(data), "bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
