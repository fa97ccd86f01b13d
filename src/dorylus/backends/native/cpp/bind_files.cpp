#include <nanobind/stl/string.h>

#include <algorithm>
#include <vector>

#include "bindings.h"
#include "buffer.h"
#include "crc32.h"
#include "mapped_files.h"

namespace dorylus {

namespace {

// The bytes of anything with a contiguous buffer.
class Bytes {
 public:
  explicit Bytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  Bytes(const Bytes&) = delete;
  ~Bytes() { PyBuffer_Release(&view_); }
  const uint8_t* data() const { return static_cast<const uint8_t*>(view_.buf); }
  size_t size() const { return size_t(view_.len); }

 private:
  Py_buffer view_;
};

uint32_t py_crc32(nb::handle object, uint32_t before) {
  Bytes bytes(object);
  nb::gil_scoped_release released;
  return crc32(bytes.data(), bytes.size(), before);
}

// The checksums of blocks of so many bytes, the last perhaps shorter: 4 bytes each, as they lie in memory.
nb::bytes py_crc32_blocks(nb::handle object, int64_t block_bytes) {
  if (block_bytes < 1) bad_value("block_bytes is " + std::to_string(block_bytes) + ": give at least 1");
  Bytes bytes(object);
  std::vector<uint32_t> found;
  {
    nb::gil_scoped_release released;
    size_t block = size_t(block_bytes);
    found.reserve(bytes.size() / block + 1);
    for (size_t begin = 0; begin < bytes.size(); begin += block)
      found.push_back(crc32(bytes.data() + begin, std::min(block, bytes.size() - begin), 0));
  }
  return nb::bytes(reinterpret_cast<const char*>(found.data()), found.size() * sizeof(uint32_t));
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def("crc32", &py_crc32);
  m.def("crc32_blocks", &py_crc32_blocks);
  m.def("watch_mapping", [](uintptr_t begin, size_t size, const std::string& sentence) {
    return watch_mapping(reinterpret_cast<const void*>(begin), size, sentence);
  });
  m.def("unwatch_mapping", &unwatch_mapping);
}

}  // namespace dorylus
