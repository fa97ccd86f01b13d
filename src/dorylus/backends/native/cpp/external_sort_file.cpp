#include "external_sort_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace dorylus {

namespace {

constexpr int64_t kPiece = 8 << 20;  // bytes per write: the most in the page cache where direct access is not possible

[[noreturn]] void fail(int number) { throw std::system_error(number, std::generic_category()); }

int duplicate(int descriptor) {
  int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) fail(errno);
  return own;
}

bool go_direct(int descriptor) {
#ifdef O_DIRECT
  int flags = fcntl(descriptor, F_GETFL);
  return flags >= 0 && fcntl(descriptor, F_SETFL, flags | O_DIRECT) == 0;
#else
  (void)descriptor;
  return false;
#endif
}

}  // namespace

Pages::Pages(int64_t bytes) : data_(nullptr), bytes_(round_up(std::max<int64_t>(bytes, 1), kSector)) {
  data_ = mmap(nullptr, size_t(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (bytes_ >= 64 << 20) madvise(data_, size_t(bytes_), MADV_HUGEPAGE);  // scattered writes: fewer misses
#endif
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, size_t(bytes_));
}

Pages::Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ScratchFile::ScratchFile(int descriptor) : descriptor_(duplicate(descriptor)), direct_(go_direct(descriptor_)) {}

ScratchFile::~ScratchFile() { close(descriptor_); }

void ScratchFile::write(const std::byte* data, int64_t bytes, int64_t offset) {
  for (int64_t done = 0; done < bytes;) {
    int64_t wanted = std::min(bytes - done, kPiece);
    bool was_direct = direct_;  // read before the call: another thread may switch direct access off
    int64_t written = pwrite(descriptor_, data + done, size_t(wanted), offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && was_direct) {  // the file system accepts the flag and refuses the write
      leave_direct();
      continue;
    }
    if (written < 0) fail(errno);
    if (written == 0) fail(ENOSPC);
    if (written % kSector != 0) leave_direct();  // the rest starts within a sector: the next try reports why
    drop(offset + done, written);
    done += written;
  }
}

void ScratchFile::read(std::byte* data, int64_t bytes, int64_t offset) const {
  for (int64_t done = 0; done < bytes;) {
    bool was_direct = direct_;
    int64_t got = pread(descriptor_, data + done, size_t(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && was_direct) {  // direct reads refused, or the rest is not aligned
      leave_direct();
      continue;
    }
    if (got < 0) fail(errno);
    if (got == 0) fail(EIO);  // the file was cut short by another process
    done += got;
  }
  if (!direct_) posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_DONTNEED);
}

void ScratchFile::forget(int64_t offset, int64_t bytes) const {
#ifdef FALLOC_FL_PUNCH_HOLE
  // Best effort: where holes cannot be made, the space comes back when the file is closed.
  if (bytes > 0) (void)!fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
#endif
}

void ScratchFile::leave_direct() const {
#ifdef O_DIRECT
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) & ~O_DIRECT);
#endif
  direct_ = false;  // after the descriptor's flag, so that a thread that reads false is not refused
}

// Pages are dropped only once they are clean.
void ScratchFile::drop(int64_t offset, int64_t bytes) const {
  if (direct_) return;
#ifdef SYNC_FILE_RANGE_WRITE
  constexpr unsigned kAll = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (sync_file_range(descriptor_, offset, bytes, kAll) < 0 && errno != ENOSYS && errno != ESPIPE) fail(errno);
#endif
  posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_DONTNEED);
}

}  // namespace dorylus
