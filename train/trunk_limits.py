"""Fixed sizes that data and model agree on."""
MAX_DOCUMENT = 32768            # longest document in tokens
SHORT_DOCUMENT = 2048           # longest document of any family but the long needles
MAX_PATCHES = 384               # most patches of one image (42 cells of 9, and a round number)
MAX_CELLS = 42                  # most aligner rows of one image: rows * (columns + 1) <= 42
