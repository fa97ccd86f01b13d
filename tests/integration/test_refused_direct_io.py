"""File systems that let a file be opened past the page cache (O_DIRECT) and then refuse every transfer that way.

A library under the process, preloaded, answers as they do: the whole run, native code included, sees nothing else.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dorylus
from dorylus import process_memory
from dorylus.memory import limit as limits
from dorylus.memory.layout import Figures
from dorylus.partition import make_partitioning, save_shards

LAYER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static long refused;

static int is_direct(int file) {
  int flags = fcntl(file, F_GETFL);
  if (flags < 0 || !(flags & O_DIRECT)) return 0;
  __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
  errno = EINVAL;
  return 1;
}

long refused_moves(void) { return refused; }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread64(int file, void *to, size_t size, off64_t at) { return is_direct(file) ? -1 : REAL(pread64)(file, to, size, at); }
ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) { return is_direct(file) ? -1 : REAL(pwrite64)(file, from, size, at); }
ssize_t pread(int file, void *to, size_t size, off_t at) { return is_direct(file) ? -1 : REAL(pread)(file, to, size, at); }
ssize_t pwrite(int file, const void *from, size_t size, off_t at) { return is_direct(file) ? -1 : REAL(pwrite)(file, from, size, at); }
ssize_t preadv(int file, const struct iovec *to, int count, off_t at) { return is_direct(file) ? -1 : REAL(preadv)(file, to, count, at); }
ssize_t pwritev(int file, const struct iovec *from, int count, off_t at) { return is_direct(file) ? -1 : REAL(pwritev)(file, from, count, at); }
ssize_t preadv64(int file, const struct iovec *to, int count, off64_t at) { return is_direct(file) ? -1 : REAL(preadv64)(file, to, count, at); }
ssize_t pwritev64(int file, const struct iovec *from, int count, off64_t at) { return is_direct(file) ? -1 : REAL(pwritev64)(file, from, count, at); }
ssize_t preadv2(int file, const struct iovec *to, int count, off_t at, int flags) { return is_direct(file) ? -1 : REAL(preadv2)(file, to, count, at, flags); }
ssize_t pwritev2(int file, const struct iovec *from, int count, off_t at, int flags) { return is_direct(file) ? -1 : REAL(pwritev2)(file, from, count, at, flags); }
ssize_t preadv64v2(int file, const struct iovec *to, int count, off64_t at, int flags) { return is_direct(file) ? -1 : REAL(preadv64v2)(file, to, count, at, flags); }
ssize_t pwritev64v2(int file, const struct iovec *from, int count, off64_t at, int flags) { return is_direct(file) ? -1 : REAL(pwritev64v2)(file, from, count, at, flags); }
"""  # noqa: E501


def run(store: Path) -> list[float]:
    """A graph is ingested, cut into shards under a limit, and trained on with everything in files: the losses."""
    source, destination = np.random.default_rng(0).integers(0, 3000, (2, 20_000))
    x = np.random.default_rng(1).standard_normal((3000, 8)).astype(np.float32)
    graph = dorylus.Graph.ingest(
        (source, destination),
        store,
        undirected=False,
        features=x,
        labels=np.arange(3000) % 4,
        train=np.ones(3000, bool),
        name="graph",
    )
    parts = make_partitioning(graph, 2, "stream", memory="1GiB")
    save_shards(f"{store}-shards", graph, parts, memory="1GiB")
    return dorylus.train(graph, dorylus.gcn(hidden=8), memory="256MiB", threads=2, epochs=3, seed=0).losses


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    """The library, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = tmp_path_factory.mktemp("layer") / "layer.c"
    source.write_text(LAYER)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", source.with_suffix(".so"), source, "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return source.with_suffix(".so")


@pytest.mark.usefixtures("nothing_fits")
def test_a_run_uses_the_page_cache_where_direct_transfers_are_refused(layer, tmp_path):
    expected = run(tmp_path / "plain")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(layer)}
    command = [sys.executable, __file__, tmp_path / "refusing"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["refused"] > 0
    assert result["losses"] == expected
    for name in ("indices.bin", "features.bin", "manifest.json", "blocks.crc32"):
        assert (tmp_path / "refusing" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def main() -> None:
    """Run with all pages in files, as in the tests; print the losses and the number of refused transfers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_memory, "private_bytes", lambda: 0)
        patch.setattr(limits, "in_memory", lambda *_, **__: Figures(Counter({"everything": 1 << 60})))
        patch.setattr(limits, "SPILL_POLICIES", limits.SPILL_POLICIES[-1:])
        patch.setattr(limits, "FEWEST_ROWS", 50)
        losses = run(Path(sys.argv[1]))
    print(json.dumps({"losses": losses, "refused": ctypes.CDLL(None).refused_moves()}))


if __name__ == "__main__":
    main()
