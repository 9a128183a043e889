"""bm25s tries JAX out when it is imported, which claims a GPU's memory: it must not get to see it."""

import subprocess
import sys


def test_bm25_is_loaded_without_jax_and_leaves_it_alone(tmp_path):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise SystemExit('JAX was imported')", encoding="utf-8")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from quaere.search.bm25 import _import_bm25s\n"
        "bm25s = _import_bm25s()\n"
        "assert not bm25s.selection.JAX_IS_AVAILABLE and 'jax' not in sys.modules and bm25s.BM25"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
