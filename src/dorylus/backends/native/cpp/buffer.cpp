#include "buffer.h"

#include <nanobind/ndarray.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace dorylus {

namespace {

constexpr int64_t kHugePage = 2 << 20;

std::string shape_of(const Py_buffer& view) {
  std::string text = "(";
  for (int d = 0; d < view.ndim; ++d) text += (d ? ", " : "") + std::to_string(view.shape[d]);
  return text + ")";
}

}  // namespace

void bad_value(const std::string& message) { throw nb::value_error(message.c_str()); }

Array::Array(nb::handle object, const char* name, bool writable) : name_(name) {
  if (object.is_none()) return;
  int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
    PyErr_Clear();
    if (writable && PyObject_CheckBuffer(object.ptr())) bad_value(std::string(name) + " must be a writable array");
    throw nb::type_error((std::string(name) + " must be a NumPy array").c_str());
  }
  present_ = true;
}

void Array::wrong_type(const std::string& wanted) const {
  std::string found = present_ ? "element code '" + std::string(view_.format ? view_.format : "B") + "'" : "None";
  throw nb::type_error((std::string(name_) + " must hold " + wanted + ", not " + found).c_str());
}

void Array::need_dims(int dims, const char* what) const {
  if (view_.ndim != dims) bad_value(std::string(name_) + " must be a " + what + ", not of shape " + shape_of(view_));
}

template <class T> bool Array::holds() const {
  if (!present_ || view_.itemsize != sizeof(T) || view_.format == nullptr) return false;
  return std::strlen(view_.format) == 1 && std::strchr(ElementOf<T>::codes, view_.format[0]) != nullptr;
}

template <class T> T* Array::vector(int64_t length) const {
  if (!present_) return nullptr;
  if (!holds<T>()) wrong_type(ElementOf<T>::name);
  need_dims(1, "vector");
  if (length >= 0 && rows() != length)
    bad_value(std::string(name_) + " must have " + std::to_string(length) + " elements, not " + std::to_string(rows()));
  if (rows() > 1 && view_.strides[0] != int64_t(sizeof(T))) bad_value(std::string(name_) + " must be contiguous");
  return static_cast<T*>(view_.buf);
}

template <class T> Rows<T> Array::matrix(int64_t num_rows, int64_t num_cols) const {
  if (!present_) return {};
  if (!holds<T>()) wrong_type(ElementOf<T>::name);
  need_dims(2, "matrix");
  if (rows() < num_rows)
    bad_value(std::string(name_) + " must have at least " + std::to_string(num_rows) + " rows, not " +
              std::to_string(rows()));
  if (num_cols >= 0 && cols() != num_cols)
    bad_value(std::string(name_) + " must have " + std::to_string(num_cols) + " columns, not " +
              std::to_string(cols()));
  constexpr int64_t size = sizeof(T);
  bool packed = cols() <= 1 || view_.strides[1] == size;
  bool stepped = rows() <= 1 || (view_.strides[0] % size == 0 && view_.strides[0] >= cols() * size);
  if (view_.len != 0 && !(packed && stepped))
    bad_value(std::string(name_) + " must be row-major: a stride of one element along the row, whole rows apart");
  return {static_cast<T*>(view_.buf), view_.strides[0] / size};
}

template <class T> T* Array::required(int64_t length) const {
  if (!present_) wrong_type(ElementOf<T>::name);
  return vector<T>(length);
}

template <class T> Rows<T> Array::required(int64_t num_rows, int64_t num_cols) const {
  if (!present_) wrong_type(ElementOf<T>::name);
  return matrix<T>(num_rows, num_cols);
}

#define DORYLUS_ELEMENT(T)                                   \
  template bool Array::holds<T>() const;                     \
  template T* Array::vector<T>(int64_t) const;               \
  template T* Array::required<T>(int64_t) const;             \
  template Rows<T> Array::matrix<T>(int64_t, int64_t) const; \
  template Rows<T> Array::required<T>(int64_t, int64_t) const;
DORYLUS_ELEMENT(float)
DORYLUS_ELEMENT(uint16_t)
DORYLUS_ELEMENT(uint8_t)
DORYLUS_ELEMENT(int8_t)
DORYLUS_ELEMENT(int32_t)
DORYLUS_ELEMENT(int64_t)
DORYLUS_ELEMENT(bool)
#undef DORYLUS_ELEMENT

Range checked_range(int64_t begin, int64_t end, int64_t num_rows) {
  if (begin < 0 || begin > end || end > num_rows)
    bad_value("rows " + std::to_string(begin) + ":" + std::to_string(end) + " are not a range of " +
              std::to_string(num_rows) + " rows");
  return {begin, end};
}

template <class T> void* Fresh<T>::allocate(int64_t bytes) {
  // Scattered writes miss the TLB on small pages, and the kernel may provide huge pages only on request.
  bool huge = bytes >= 2 * kHugePage;
  int64_t unit = huge ? kHugePage : 64;
  void* data = std::aligned_alloc(unit, (bytes / unit + 1) * unit);
  if (data == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  if (huge) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return data;
}

template <class T> void Fresh<T>::shrink(int64_t count) {
  void* kept = std::realloc(data_, count * int64_t(sizeof(T)) + 1);
  if (kept != nullptr) data_ = static_cast<T*>(kept);
  count_ = count;
}

template <class T> void Fresh<T>::release(void* data) noexcept { std::free(data); }

template <class T> nb::object Fresh<T>::to_python() {
  nb::capsule owner(data_, [](void* p) noexcept { std::free(p); });
  T* data = data_;
  data_ = nullptr;
  size_t shape[1] = {size_t(count_)};
  return nb::cast(nb::ndarray<nb::numpy, T>(data, 1, shape, owner));
}

template class Fresh<int64_t>;
template class Fresh<uint8_t>;
template class Fresh<int32_t>;
template class Fresh<float>;

}  // namespace dorylus
