#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the image files of this folder and expected.json: what Pillow makes of each file. Usage: make_images.py [--check]

Needs Pillow and NumPy. --check only compares the stored files with the Pillow at hand and writes nothing.
PNG forms that Pillow cannot write are written here by hand.
"""
import hashlib
import io
import json
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

HERE = Path(__file__).resolve().parent


def pattern(w, h, channels=3, k=0, top=256):
    """Smooth ramps with some texture: compresses lossily without being flat."""
    y, x = np.mgrid[0:h, 0:w]
    planes = [(3 * x + 5 * y + 7 * k), (7 * x + 2 * y + 31), (x * x // 3 + 11 * y + k), (255 - 9 * x + 4 * y)]
    return np.stack([p % top for p in planes[:channels]], axis=-1).astype(np.uint16)


# ---- PNG by hand: any colour type, depth and interlacing -------------------------------------------------------------
def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def pack_rows(samples, depth):
    out = b""
    for row in samples:
        flat = row.reshape(-1)
        if depth == 16:
            raw = flat.astype(">u2").tobytes()
        elif depth == 8:
            raw = flat.astype(np.uint8).tobytes()
        else:
            bits = "".join(format(int(v), f"0{depth}b") for v in flat)
            bits += "0" * (-len(bits) % 8)
            raw = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
        out += b"\0" + raw
    return out


def png(samples, depth, color_type, interlace=False, palette=None, trns=None, extra=b""):
    h, w = samples.shape[:2]
    data = b""
    if interlace:
        for y0, x0, dy, dx in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)):
            part = samples[y0::dy, x0::dx]
            if part.size:
                data += pack_rows(part, depth)
    else:
        data = pack_rows(samples, depth)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color_type, 0, 0, int(interlace)))
    out += extra
    if palette is not None:
        out += chunk(b"PLTE", palette)
    if trns is not None:
        out += chunk(b"tRNS", trns)
    return out + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def png_files():
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
    for color_type, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            for interlace in (False, True):
                samples = pattern(37, 21, channels[color_type], k=depth, top=1 << depth)
                if depth == 16:
                    samples = (samples.astype(np.uint32) * 257 % 65521 * (3 + color_type) % 65536).astype(np.uint16)
                    if color_type == 0:
                        samples[::2] %= 400  # grey levels on both sides of 255
                palette = None
                if color_type == 3:
                    palette = bytes((37 * i + 11 * c * c + 5) % 256 for i in range(1 << depth) for c in range(3))
                name = f"png_type{color_type}_depth{depth}{'_interlaced' if interlace else ''}.png"
                yield name, png(samples, depth, color_type, interlace, palette)
    grey = pattern(9, 7, 1, top=256)
    yield "png_grey_transparent.png", png(grey, 8, 0, trns=struct.pack(">H", 31))
    yield "png_rgb_transparent.png", png(pattern(9, 7), 8, 2, trns=struct.pack(">HHH", 0, 31, 0))
    short = bytes(range(5, 5 + 30))
    yield "png_palette_transparent.png", png(grey % 10, 8, 3, palette=short, trns=bytes([0, 128, 255]))
    yield "png_palette_short.png", png(grey % 14, 8, 3, palette=short)
    yield "png_palette_on_rgb.png", png(pattern(9, 7), 8, 2, palette=short)
    yield "png_gamma.png", png(pattern(9, 7), 8, 2, extra=chunk(b"gAMA", struct.pack(">I", 100000)))
    yield "png_1x1.png", png(pattern(1, 1), 8, 2)
    yield "png_apng.png", apng()
    yield "png_trailing_bytes.png", png(pattern(9, 7), 8, 2) + b"trailing"


def apng():
    out = io.BytesIO()
    frames = [Image.fromarray(pattern(12, 8, k=k).astype(np.uint8)) for k in (0, 50)]
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:])
    return out.getvalue()


# ---- the other formats, by Pillow -----------------------------------------------------------------------------------
def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def rgb(w, h, k=0):
    return Image.fromarray(pattern(w, h, 3, k).astype(np.uint8), "RGB")


def jpeg_files():
    for subsampling, word in ((0, "444"), (1, "422"), (2, "420")):
        yield f"jpeg_{word}.jpg", saved(rgb(45, 31), "JPEG", quality=80, subsampling=subsampling)
    yield "jpeg_progressive.jpg", saved(rgb(61, 40), "JPEG", quality=85, progressive=True)
    yield "jpeg_grey.jpg", saved(rgb(33, 17).convert("L"), "JPEG", quality=90)
    cmyk = Image.fromarray(pattern(29, 23, 4).astype(np.uint8), "CMYK")
    yield "jpeg_cmyk.jpg", saved(cmyk, "JPEG", quality=90)
    yield "jpeg_rgb_colors.jpg", saved(rgb(24, 24), "JPEG", quality=90, keep_rgb=True)
    yield "jpeg_restart.jpg", saved(rgb(64, 48), "JPEG", quality=75, restart_marker_blocks=2)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "jpeg_exif_rotated.jpg", saved(rgb(40, 20), "JPEG", quality=80, exif=exif)
    yield "jpeg_ycck.jpg", (HERE / "jpeg_ycck.jpg").read_bytes()  # by libjpeg-turbo's tjCompress2 from CMYK pixels; Pillow writes none
    plain = saved(rgb(45, 31), "JPEG", quality=80)
    yield "jpeg_extraneous_bytes.jpg", plain[:-2] + b"\0\0\0" + plain[-2:] + b"trailing"
    yield "jpeg_1x1.jpg", saved(rgb(1, 1), "JPEG")
    yield "jpeg_16x1.jpg", saved(rgb(16, 1), "JPEG")


def webp_files():
    rgba = Image.fromarray(pattern(35, 27, 4).astype(np.uint8), "RGBA")
    yield "webp_lossy.webp", saved(rgb(50, 38), "WEBP", quality=70)
    yield "webp_lossless.webp", saved(rgb(50, 38), "WEBP", lossless=True)
    yield "webp_lossy_alpha.webp", saved(rgba, "WEBP", quality=70)
    yield "webp_lossless_alpha.webp", saved(rgba, "WEBP", lossless=True, exact=True)
    frames = [rgb(20, 16, k) for k in (0, 90)]
    yield "webp_animated.webp", saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    yield "webp_1x1.webp", saved(rgb(1, 1), "WEBP", lossless=True)


# ---- GIF by hand: uncompressed-style LZW (a clear code before the table grows) ----------------------------------------
def gif_lzw(indices, bits):
    clear, out, acc, n = 1 << bits, bytearray(), 0, 0
    width = bits + 1
    codes = []
    for i, v in enumerate(indices):
        if i % ((1 << bits) - 2) == 0:
            codes.append(clear)
        codes.append(int(v))
    codes.append(clear + 1)
    for code in codes:
        acc |= code << n
        n += width
        while n >= 8:
            out.append(acc & 255)
            acc >>= 8
            n -= 8
    if n:
        out.append(acc & 255)
    blocks = b"".join(bytes([len(out[i:i + 255])]) + bytes(out[i:i + 255]) for i in range(0, len(out), 255))
    return bytes([bits]) + blocks + b"\0"


def gif(screen, frame, indices, bits, global_palette=None, local_palette=None, transparent=None, interlace=False, tail=b";"):
    out = b"GIF89a" + struct.pack("<HHBBB", *screen, (0x80 | bits - 1) if global_palette else 0, 0, 0)
    out += global_palette or b""
    if transparent is not None:
        out += b"!\xf9\x04" + struct.pack("<BHB", 1, 10, transparent) + b"\0"
    x, y, w, h = frame
    out += b"," + struct.pack("<HHHHB", x, y, w, h, (0x80 | bits - 1 if local_palette else 0) | (0x40 if interlace else 0))
    out += local_palette or b""
    grid = np.asarray(indices).reshape(h, w)
    if interlace:
        grid = np.concatenate([grid[a::b] for a, b in ((0, 8), (4, 8), (2, 4), (1, 2))])
    return out + gif_lzw(grid.reshape(-1), bits) + tail


def gif_files():
    bits = 4
    colors = bytes((53 * i + 17 * c + 9) % 256 for i in range(16) for c in range(3))
    other = bytes((29 * i + 91 * c + 3) % 256 for i in range(16) for c in range(3))
    ramp = bytes(i for i in range(16) for _ in range(3))
    cells = pattern(13, 11, 1, top=16)[..., 0]
    yield "gif_global.gif", gif((13, 11), (0, 0, 13, 11), cells, bits, colors)
    yield "gif_local.gif", gif((13, 11), (0, 0, 13, 11), cells, bits, colors, other)
    yield "gif_interlaced.gif", gif((13, 11), (0, 0, 13, 11), cells, bits, colors, interlace=True)
    yield "gif_transparent.gif", gif((13, 11), (0, 0, 13, 11), cells, bits, colors, transparent=5)
    yield "gif_small_frame.gif", gif((20, 18), (4, 3, 13, 11), cells, bits, colors)
    yield "gif_small_frame_transparent.gif", gif((20, 18), (4, 3, 13, 11), cells, bits, colors, transparent=7)
    yield "gif_large_frame.gif", gif((8, 8), (2, 1, 13, 11), cells, bits, colors)
    yield "gif_grey_ramp.gif", gif((13, 11), (0, 0, 13, 11), cells, bits, ramp)
    yield "gif_no_palette.gif", gif((13, 11), (0, 0, 13, 11), cells, bits)
    yield "gif_short_palette.gif", gif_short(cells, colors[:12])
    frames = [rgb(24, 18, k).quantize(32) for k in (0, 100)]
    yield "gif_animated.gif", saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)
    yield "gif_rgb.gif", saved(rgb(60, 44), "GIF")


def gif_short(cells, palette):
    """Four palette entries, sixteen index values."""
    out = b"GIF87a" + struct.pack("<HHBBB", 13, 11, 0x80 | 1, 0, 0) + palette
    return out + b"," + struct.pack("<HHHHB", 0, 0, 13, 11, 0) + gif_lzw(cells.reshape(-1), 4) + b";"


def expected(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    pixels = image.tobytes()
    return {"width": image.width, "height": image.height, "sum": sum(pixels), "sha256": hashlib.sha256(pixels).hexdigest()}


# ---- resampling and padding: inputs by formula, outputs as hashes ------------------------------------------------------
def formula(w, h, k):
    y, x = np.mgrid[0:h, 0:w].astype(np.int64)
    return Image.fromarray(np.stack([(3 * x + 5 * y + 7 * k) % 256, (7 * x + 2 * y + 31) % 256, (x * x + 11 * y + k) % 256], -1).astype(np.uint8))


def digest(image):
    pixels = image.tobytes()
    return {"sum": sum(pixels), "sha256": hashlib.sha256(pixels).hexdigest()}


def resample_cases():
    sizes = [(1, 1, 5, 7), (2, 3, 7, 2), (5, 4, 5, 9), (5, 4, 9, 4), (64, 48, 13, 11), (31, 77, 100, 20), (200, 1, 3, 40), (1, 200, 40, 3),
             (97, 61, 97, 61), (333, 222, 50, 400), (1000, 10, 7, 30), (17, 19, 34, 38), (256, 256, 255, 257)]
    for i, (w, h, nw, nh) in enumerate(sizes):
        resized = formula(w, h, i).resize((nw, nh), Image.Resampling.BICUBIC)
        case = {"in": [w, h], "k": i, "out": [nw, nh], "resize": digest(resized)}
        try:
            case["pad"] = digest(ImageOps.pad(formula(w, h, i), (nw, nh), method=Image.Resampling.BICUBIC, color=(127, 127, 127)))
        except ValueError:
            pass  # a side that rounds to 0 is refused (Pillow 13 makes it 1)
        yield case


def files():
    for group in (png_files(), jpeg_files(), webp_files(), gif_files()):
        yield from group


def main():
    if "--check" in sys.argv:
        stored = json.loads((HERE / "expected.json").read_text())
        bad = [n for n, e in stored["files"].items() if expected((HERE / n).read_bytes()) != e]
        bad += [str(c["out"]) for c, d in zip(resample_cases(), stored["resample"]) if any(d.get(k) != v for k, v in c.items())]
        print(f"Pillow {Image.__version__}: {len(stored['files'])} files, {len(stored['resample'])} resample cases, differing: {bad}")
        sys.exit(bool(bad))
    out = {"pillow": Image.__version__, "files": {}, "resample": list(resample_cases())}
    for name, data in files():
        (HERE / name).write_bytes(data)
        out["files"][name] = expected(data)
    (HERE / "expected.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
