"""How an image becomes a canvas, patches and a span of tokens."""
import math
from dataclasses import dataclass

import numpy as np

GREY = 127


def grid(width, height, config):
    fold = config.downsample_ratio
    columns = math.ceil(width / config.patch_size / fold)
    rows = math.ceil(height / config.patch_size / fold)
    return rows, columns, rows * (columns + 1) + 2


def canvas_size(width, height, config):
    """Canvas width and height for an image, in double precision as the reference computes it."""
    patch, fold, limit = config.patch_size, config.downsample_ratio, config.max_image_tokens
    cell = patch * fold
    if config.max_wh_ratio and width > config.max_wh_ratio * height:
        width = config.max_wh_ratio * height
    if width * height < config.min_pixels:
        grow = math.sqrt(config.min_pixels / (width * height))
        width, height = int(width * grow), int(height * grow)
    canvas_width, canvas_height = patch * math.ceil(width / patch), patch * math.ceil(height / patch)
    if grid(canvas_width, canvas_height, config)[2] <= limit:
        return canvas_width, canvas_height
    ratio = height / width
    most_columns = math.sqrt((limit - 2) / ratio + 0.25) - 0.5
    most_rows = most_columns * ratio
    if most_columns < 1:
        return cell, cell * ((limit - 2) // 2)
    if most_rows < 1:
        return cell * (limit - 3), cell
    shrink = min(cell * int(most_columns) / width, cell * int(most_rows) / height)
    return patch * int(width * shrink / patch), patch * int(height * shrink / patch)


def fit(image, size):
    """Resized to fit, centred on a grey canvas. image uint8 [h, w, 3] -> uint8 canvas"""
    from PIL import Image
    width, height = size
    if (image.shape[1], image.shape[0]) == size:
        return image
    source_ratio, target_ratio = image.shape[1] / image.shape[0], width / height
    new_width, new_height = width, height
    if source_ratio > target_ratio:
        new_height = round(image.shape[0] / image.shape[1] * width)
    elif source_ratio < target_ratio:
        new_width = round(image.shape[1] / image.shape[0] * height)
    resized = np.asarray(Image.fromarray(image).resize((new_width, new_height), Image.BICUBIC))
    canvas = np.full((height, width, 3), GREY, np.uint8)
    left, top = round((width - new_width) / 2), round((height - new_height) / 2)
    canvas[top:top + new_height, left:left + new_width] = resized
    return canvas


def canvas_of(image, config):
    return fit(image, canvas_size(image.shape[1], image.shape[0], config))


@dataclass
class Span:
    """One image inside a packed buffer."""
    position: int          # of its first token
    canvas: np.ndarray

    def num_tokens(self, config):
        return grid(self.canvas.shape[1], self.canvas.shape[0], config)[2]

    def patches(self, config):
        """uint8 [patches, 3 * p * p], channel first inside a patch; and the patch grid"""
        p = config.patch_size
        rows, columns = self.canvas.shape[0] // p, self.canvas.shape[1] // p
        return self.canvas.reshape(rows, p, columns, p, 3).transpose(0, 2, 4, 1, 3).reshape(rows * columns, -1), rows, columns

    def cells(self, config, none):
        """Patch numbers of every 3 x 3 cell, channel-major for the aligner: [cells, 9]; `none` marks padding."""
        p, fold = config.patch_size, config.downsample_ratio
        rows, columns = self.canvas.shape[0] // p, self.canvas.shape[1] // p
        numbers = np.full((-(-rows // fold) * fold, -(-columns // fold) * fold), none)
        numbers[:rows, :columns] = np.arange(rows * columns).reshape(rows, columns)
        return numbers.reshape(numbers.shape[0] // fold, fold, -1, fold).transpose(0, 2, 1, 3).reshape(-1, fold * fold)

    def sources(self, config, first_cell, start, newline, end):
        """What each token of the span shows: a row of the aligner output or one of the three marks."""
        rows, columns, _ = grid(self.canvas.shape[1], self.canvas.shape[0], config)
        numbers = first_cell + np.arange(rows * columns).reshape(rows, columns)
        lines = np.concatenate((numbers, np.full((rows, 1), newline)), 1)
        return np.concatenate(([start], lines.ravel(), [end]))
