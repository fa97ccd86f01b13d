#!/usr/bin/env bash
# The kernels for arm64 (NEON): cross-compiled by the project's CMakeLists.txt, and their tests run by an arm64 Python under qemu.
# That Python is Debian's, unpacked into build/arm/root; nothing is installed on this machine. Packages come by hash from the lock.
set -euo pipefail
cd "$(dirname "$0")/.."

tests=${*:-tests/unit/backends}
packages="hypothesis iniconfig numpy packaging pluggy pygments pytest pytest-timeout scipy sortedcontainers"

for tool in aarch64-linux-gnu-g++ qemu-aarch64 apt-get dpkg-deb; do
  command -v $tool > /dev/null || {
    echo "make test-arm needs $tool: on Debian or Ubuntu, apt-get install g++-aarch64-linux-gnu qemu-user." >&2
    exit 2
  }
done

arm=$PWD/build/arm root=$PWD/build/arm/root site=$PWD/build/arm/site
python=$(apt-cache depends python3 | grep -om1 'python3\.[0-9]*$')
version=${python#python}
.venv/bin/python -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" || {
  echo "make test-arm needs a .venv of Python $version, which is this system's: make setup PYTHON=python$version." >&2
  exit 2
}

if [ ! -e "$root/.unpacked" ]; then
  rm -rf "$root" "$arm/apt"
  mkdir -p "$root" "$arm/apt/state/lists/partial" "$arm/apt/cache/archives/partial" "$arm/apt/debs"
  touch "$arm/apt/state/status" # nothing counts as installed, so that all that Python needs is fetched
  cat > "$arm/apt/apt.conf" << CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$arm/apt/state";
Dir::State::status "$arm/apt/state/status";
Dir::Cache "$arm/apt/cache";
CONF
  export APT_CONFIG=$arm/apt/apt.conf
  apt-get update -qq -o Acquire::Retries=2 || true # sources of others may have no arm64; what is missing shows below
  debs=$(apt-get install -qq -y --no-install-recommends --print-uris "$python-minimal" "lib$python-stdlib" "lib$python-dev" libstdc++6 | awk '{ print $2 }' | sed 's/_.*//')
  (cd "$arm/apt/debs" && apt-get download -qq $debs)
  for deb in "$arm"/apt/debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
  touch "$root/.unpacked"
fi

if [ ! -e "$site/.installed" ] || [ requirements.lock -nt "$site/.installed" ]; then
  rm -rf "$site"
  .venv/bin/python - $packages > "$arm/packages.lock" << 'PYTHON'
import sys
sys.path.insert(0, "tools")
from supply_chain import LOCK, _entries
entries = _entries(LOCK.read_text())
print("".join(entries[name] for name in sys.argv[1:]))
PYTHON
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: --target "$site" \
    --implementation cp --python-version "$version" --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
    --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 -r "$arm/packages.lock"
  touch "$site/.installed"
fi

.venv/bin/cmake -S . -B "$arm/build" -G Ninja -DCMAKE_MAKE_PROGRAM="$PWD/.venv/bin/ninja" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
  -DCMAKE_CXX_FLAGS="-I$root/usr/include/$python -I$root/usr/include" -DPython_EXECUTABLE="$PWD/.venv/bin/python" \
  -DPython_INCLUDE_DIR="$root/usr/include/$python" -Dnanobind_DIR="$(.venv/bin/python -m nanobind --cmake_dir)" > "$arm/cmake.log" ||
  { cat "$arm/cmake.log" >&2; exit 1; }
.venv/bin/cmake --build "$arm/build"

# A copy of the package with that module in place of this machine's.
rm -rf "$arm/package"
mkdir -p "$arm/package"
cp -r src/dorylus "$arm/package/dorylus"
find "$arm/package" -name '*.so' -delete
cp "$arm"/build/_native*.so "$arm/package/dorylus/backends/native/_native.so"

# What starts that Python, also for tests that start another: it takes this script for itself.
cat > "$arm/python" << SCRIPT
#!/bin/sh
export PYTHONHOME="$root/usr" PYTHONPATH="$arm/package:$site" PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
exec qemu-aarch64 -L "$root" -0 "$arm/python" "$root/usr/bin/$python" -S "\$@"
SCRIPT
chmod +x "$arm/python"
"$arm/python" -c "import platform; from dorylus.backends import native; print(platform.machine(), platform.python_version(), native.isa())"
"$arm/python" -m pytest -p no:cacheprovider --timeout 3600 $tests
