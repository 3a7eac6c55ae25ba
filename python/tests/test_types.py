# SPDX-License-Identifier: MIT
"""The stub of the native module names what the module has, and the package passes a strict type check."""

import ast
from pathlib import Path

import pytest
from conftest import ROOT

import deepinfer_cpp
from deepinfer_cpp import _codec, _engine

PACKAGE = Path(deepinfer_cpp.__file__).parent


def names(body):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id


@pytest.mark.parametrize("module", [_codec, _engine])
def test_the_stub_names_what_the_module_has(module):
    stub = module.__name__.rpartition(".")[2] + ".pyi"
    tree = ast.parse((PACKAGE / stub).read_text(encoding="utf-8"))
    public = {name for name in vars(module) if not name.startswith("_")}
    assert set(names(tree.body)) == public
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            members = {name for name in vars(getattr(module, node.name)) if not name.startswith("_")}
            assert set(names(node.body)) - {"__init__"} == members, node.name


def test_the_package_is_typed(tmp_path):
    api = pytest.importorskip("mypy.api")
    assert (PACKAGE / "py.typed").exists()
    out, err, status = api.run(["--strict", "--cache-dir", str(tmp_path), str(ROOT / "python" / "deepinfer_cpp")])
    assert status == 0, out + err
