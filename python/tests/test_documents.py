# SPDX-License-Identifier: MIT
"""The Python examples of the documents run as they stand, beside a tokenizer.json."""

import gzip
import re
import subprocess
import sys

import pytest
from conftest import ROOT, TOKENIZER

DOCUMENTS = ["python/README.md", "docs/bindings.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_examples_run(document, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(gzip.open(TOKENIZER).read())
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        run = subprocess.run([sys.executable, "-X", "utf8", "-c", block], cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        seen = run.stdout
        is_codec = "Hello, world!" in seen or ("message_stop" in seen and "🦀" in seen)
        assert is_codec or ("Once upon a time ->" in seen and "cached tokens" in seen), seen


def test_the_table_names_every_public_name():
    readme = (ROOT / "python/README.md").read_text(encoding="utf-8")
    original = pytest.importorskip("deepseek_recipe")
    from deepinfer_cpp import recipe

    for name in set(original.__all__) - {"__version__"}:
        row = next(line for line in readme.splitlines() if line.startswith("|") and f"`{name}`" in line)
        assert (row.split("|")[2].strip() != "no") == hasattr(recipe, name), name
    assert set(recipe.__all__) <= set(original.__all__)
