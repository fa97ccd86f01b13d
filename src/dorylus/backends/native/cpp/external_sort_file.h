// The scratch file of an external sort: blocks at offsets, with no page of it left in the page cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dorylus {

constexpr int64_t kSector = 4096;     // what direct reads and writes are aligned to: offset, size and memory
constexpr int64_t kIoUnit = 3 * kSector;  // holds a whole number of records of 8 and of 12 bytes

constexpr int64_t round_up(int64_t number, int64_t unit) { return (number + unit - 1) / unit * unit; }

// Memory for reads and writes, aligned to pages; pages are allocated when they are touched, and freed at the end.
class Pages {
 public:
  explicit Pages(int64_t bytes);
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;

  template <class T> T* as() const { return static_cast<T*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_;
  int64_t bytes_;
};

// A file that is read and written past the page cache (O_DIRECT) where the file system supports it; elsewhere its pages
// are dropped from the cache after every access. Failures are std::system_error with the errno.
class ScratchFile {
 public:
  explicit ScratchFile(int descriptor);  // duplicates it: the caller may close its own
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Offsets, sizes and memory in whole sectors.
  void write(const std::byte* data, int64_t bytes, int64_t offset);
  void read(std::byte* data, int64_t bytes, int64_t offset) const;
  // Frees the space of a range, where the file system can.
  void forget(int64_t offset, int64_t bytes) const;

 private:
  void leave_direct() const;
  void drop(int64_t offset, int64_t bytes) const;

  int descriptor_;
  mutable std::atomic<bool> direct_;  // readers of several threads may find that the file system refuses it
};

}  // namespace dorylus
