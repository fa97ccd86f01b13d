// Working memory of one call, a few kilobytes: a row's sums and the weights of one batch of edges.
#pragma once

#include <stdlib.h>

#include "vec.h"

namespace dorylus::DORYLUS_ISA {

constexpr int64_t kBatch = 64;  // edges whose weights are held at a time; a multiple of kLanes

// Zeroed floats (or int32), with room to read a whole vector past the end.
template <class T> class Scratch {
 public:
  explicit Scratch(int64_t count) : data_(static_cast<T*>(calloc(size_t(count) + 2 * kLanes, sizeof(T)))) {
    if (data_ == nullptr) abort();
  }
  ~Scratch() { free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  DORYLUS_INLINE T* data() const { return data_; }
  DORYLUS_INLINE T& operator[](int64_t i) const { return data_[i]; }

 private:
  T* data_;
};

}  // namespace dorylus::DORYLUS_ISA
