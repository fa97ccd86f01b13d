#include <nanobind/stl/string.h>

#include <algorithm>
#include <mutex>

#include "bindings.h"
#include "buffer.h"
#include "id_table.h"
#include "id_table_hash.h"

namespace dorylus {

namespace {

constexpr int64_t kEdges = 4096;  // edges per batch, so that keys and numbers stay in the first-level cache

using Pair = std::pair<Fresh<int32_t>, Fresh<int32_t>>;

// Numbers the ends of edges, source before destination, edge after edge. `key(which, edge)` returns an end, and
// `seen(which, edge, number)` is called with its number.
template <class Key, class KeyOf, class Seen>
Pair number_pairs(IdTable<Key>& table, int64_t num_edges, bool fixed, KeyOf key, Seen seen) {
  Pair out{Fresh<int32_t>(num_edges), Fresh<int32_t>(num_edges)};
  std::vector<Key> keys(2 * kEdges);
  std::vector<int32_t> numbers(2 * kEdges);
  for (int64_t begin = 0; begin < num_edges; begin += kEdges) {
    const int64_t count = std::min(kEdges, num_edges - begin);
    for (int64_t i = 0; i < count; ++i) keys[2 * i] = key(0, begin + i), keys[2 * i + 1] = key(1, begin + i);
    table.numbers(std::span<const Key>(keys.data(), size_t(2 * count)), numbers.data(), fixed);
    for (int64_t i = 0; i < count; ++i) {
      out.first[begin + i] = numbers[2 * i], out.second[begin + i] = numbers[2 * i + 1];
      seen(0, begin + i, numbers[2 * i]), seen(1, begin + i, numbers[2 * i + 1]);
    }
  }
  return out;
}

// Numbers for whole numbers.
class NumberIds {
 public:
  explicit NumberIds(int64_t limit_bytes) : table_(limit_bytes) {}

  int64_t size() const { return table_.size(); }

  nb::tuple pairs(nb::handle source_, nb::handle destination_, bool fixed) {
    Array source(source_, "source"), destination(destination_, "destination");
    const int64_t* ends[2] = {source.required<int64_t>(-1), destination.required<int64_t>(source.rows())};
    Pair out = [&] {
      nb::gil_scoped_release released;
      std::scoped_lock alone(lock_);
      return number_pairs(
          table_, source.rows(), fixed, [&](int which, int64_t edge) { return ends[which][edge]; },
          [](int, int64_t, int32_t) {});
    }();
    return nb::make_tuple(out.first.to_python(), out.second.to_python());
  }

  nb::object ids(int64_t first, int64_t count) {
    if (first < 0 || count < 0 || first + count > table_.size()) bad_value("there are no such ids");
    Fresh<int64_t> out(count);
    {
      nb::gil_scoped_release released;
      std::scoped_lock alone(lock_);
      table_.ids(first, {out.data(), size_t(count)});
    }
    return out.to_python();
  }

 private:
  IdTable<int64_t> table_;
  std::mutex lock_;
};

// An argument of names, one after another.
class NamesArgument {
 public:
  NamesArgument(nb::handle bytes, nb::handle offsets) : bytes_(bytes, "bytes"), offsets_(offsets, "offsets") {
    data_ = reinterpret_cast<const char*>(bytes_.required<uint8_t>(-1));
    starts_ = offsets_.required<int64_t>(-1);
    if (offsets_.rows() == 0) bad_value("offsets must have one more element than there are names, not 0");
    bool rising = std::is_sorted(starts_, starts_ + offsets_.rows());
    if (!rising || starts_[0] < 0 || starts_[size()] > bytes_.rows())
      bad_value("offsets must never fall and lie within the " + std::to_string(bytes_.rows()) + " bytes");
  }

  int64_t size() const { return offsets_.rows() - 1; }
  int64_t num_bytes() const { return starts_[size()] - starts_[0]; }
  std::string_view operator[](int64_t i) const { return {data_ + starts_[i], size_t(starts_[i + 1] - starts_[i])}; }

 private:
  Array bytes_, offsets_;
  const char* data_;
  const int64_t* starts_;
};

// Numbers for names, identified by their hashes: the caller keeps the names, and gets those that are new.
class NameIds {
 public:
  NameIds(int64_t limit_bytes, uint64_t key_low, uint64_t key_high) : table_(limit_bytes), hash_(key_low, key_high) {}

  int64_t size() const { return table_.size(); }

  nb::tuple pairs(nb::handle source_bytes, nb::handle source_offsets, nb::handle destination_bytes,
                  nb::handle destination_offsets, bool fixed) {
    const NamesArgument source(source_bytes, source_offsets), destination(destination_bytes, destination_offsets);
    if (source.size() != destination.size()) bad_value("there must be a destination for every source");
    const NamesArgument* ends[2] = {&source, &destination};
    Fresh<uint8_t> bytes(source.num_bytes() + destination.num_bytes());
    Fresh<int64_t> offsets(2 * source.size() + 1);
    int64_t num_new = offsets[0] = 0;
    Pair out = [&] {
      nb::gil_scoped_release released;
      std::scoped_lock alone(lock_);
      const int64_t before = table_.size();
      auto keep = [&](int which, int64_t edge, int32_t number) {
        if (number != before + num_new) return;
        std::string_view name = (*ends[which])[edge];
        std::memcpy(bytes.data() + offsets[num_new], name.data(), name.size());
        offsets[num_new + 1] = offsets[num_new] + int64_t(name.size());
        ++num_new;
      };
      return number_pairs(
          table_, source.size(), fixed, [&](int which, int64_t edge) { return hash_((*ends[which])[edge]); }, keep);
    }();
    bytes.shrink(offsets[num_new]);
    offsets.shrink(num_new + 1);
    return nb::make_tuple(out.first.to_python(), out.second.to_python(), bytes.to_python(), offsets.to_python());
  }

 private:
  IdTable<NameKey> table_;
  NameHash hash_;
  std::mutex lock_;
};

nb::bytes py_name_hash(nb::bytes name, uint64_t key_low, uint64_t key_high) {
  NameKey key = NameHash(key_low, key_high)({name.c_str(), name.size()});
  return nb::bytes(reinterpret_cast<const char*>(&key), sizeof key);
}

}  // namespace

void bind_id_table(nb::module_& m) {
  nb::register_exception_translator(
      [](const std::exception_ptr& error, void*) {
        try {
          std::rethrow_exception(error);
        } catch (const TableFull& full) {
          PyErr_SetString(PyExc_OverflowError, full.what());
        }
      });
  m.def("name_hash", &py_name_hash);
  nb::class_<NumberIds>(m, "NumberIds")
      .def(nb::init<int64_t>())
      .def("__len__", &NumberIds::size)
      .def_static("bytes_for", &IdTable<int64_t>::bytes_for)
      .def("pairs", &NumberIds::pairs)
      .def("ids", &NumberIds::ids);
  nb::class_<NameIds>(m, "NameIds")
      .def(nb::init<int64_t, uint64_t, uint64_t>())
      .def("__len__", &NameIds::size)
      .def_static("bytes_for", &IdTable<NameKey>::bytes_for)
      .def("pairs", &NameIds::pairs);
}

}  // namespace dorylus
