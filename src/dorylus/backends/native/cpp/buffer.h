// Array arguments: Python buffers checked once and seen as plain pointers, and new arrays returned to Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "types.h"

namespace dorylus {

namespace nb = nanobind;
using namespace nb::literals;

// The element types of the kernels, by NumPy's names.
template <class T> struct ElementOf;
template <> struct ElementOf<float> {
  static constexpr const char* name = "float32";
  static constexpr const char* codes = "f";
};
template <> struct ElementOf<uint16_t> {
  static constexpr const char* name = "uint16";
  static constexpr const char* codes = "H";
};
template <> struct ElementOf<uint8_t> {
  static constexpr const char* name = "uint8";
  static constexpr const char* codes = "B";
};
template <> struct ElementOf<int8_t> {
  static constexpr const char* name = "int8";
  static constexpr const char* codes = "b";
};
template <> struct ElementOf<int32_t> {
  static constexpr const char* name = "int32";
  static constexpr const char* codes = "il";
};
template <> struct ElementOf<int64_t> {
  static constexpr const char* name = "int64";
  static constexpr const char* codes = "lq";
};
template <> struct ElementOf<bool> {
  static constexpr const char* name = "bool";
  static constexpr const char* codes = "?";
};

// A borrowed view of one array argument; None is allowed and reads as absent.
class Array {
 public:
  Array(nb::handle object, const char* name, bool writable = false);
  ~Array() {
    if (present_) PyBuffer_Release(&view_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  bool present() const { return present_; }
  const char* name() const { return name_; }
  int64_t rows() const { return view_.shape[0]; }
  int64_t cols() const { return view_.shape[1]; }
  template <class T> bool holds() const;

  // A contiguous vector of exactly `length` elements (any length when negative); null when absent.
  template <class T> T* vector(int64_t length) const;
  // A matrix of at least `rows` rows and exactly `cols` columns (any number when negative); rows may be padded.
  template <class T> Rows<T> matrix(int64_t rows, int64_t cols) const;
  // The same, where None is an error.
  template <class T> T* required(int64_t length) const;
  template <class T> Rows<T> required(int64_t rows, int64_t cols) const;

 private:
  [[noreturn]] void wrong_type(const std::string& wanted) const;
  void need_dims(int dims, const char* what) const;

  Py_buffer view_{};
  const char* name_;
  bool present_ = false;
};

[[noreturn]] void bad_value(const std::string& message);

// The row range must lie inside [0, num_rows].
Range checked_range(int64_t begin, int64_t end, int64_t num_rows);

// Memory for `count` elements, on huge pages when it is large; owned until given to Python.
template <class T> class Fresh {
 public:
  explicit Fresh(int64_t count) : count_(count), data_(static_cast<T*>(allocate(count * int64_t(sizeof(T))))) {}
  ~Fresh() { release(data_); }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;
  Fresh(Fresh&& other) noexcept : count_(other.count_), data_(other.data_) { other.data_ = nullptr; }

  T* data() { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  int64_t size() const { return count_; }
  void shrink(int64_t count);  // keeps the first elements and frees the rest of the memory
  nb::object to_python();  // a NumPy vector that owns the memory

 private:
  static void* allocate(int64_t bytes);
  static void release(void* data) noexcept;
  int64_t count_;
  T* data_;
};

}  // namespace dorylus
