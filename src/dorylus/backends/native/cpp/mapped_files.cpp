#include "mapped_files.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace dorylus {

namespace {

constexpr size_t kMost = 512, kSentence = 1024;

struct Watched {
  std::atomic<uintptr_t> begin{0}, end{0};  // end is written last: 0 while the entry is not valid
  char sentence[kSentence];
};

std::array<Watched, kMost> watched;  // read by the signal handler: never moved, never freed
std::mutex changing;
struct sigaction before;

void say(const char* text) { (void)!write(STDERR_FILENO, text, strlen(text)); }

void on_bus_error(int, siginfo_t* info, void*) {
  uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Watched& each : watched) {
    if (at < each.begin.load(std::memory_order_acquire) || at >= each.end.load(std::memory_order_acquire)) continue;
    if (isatty(STDERR_FILENO)) say("\x1b[?25h\n");  // a progress bar may have hidden the cursor
    say(each.sentence);
    _exit(1);
  }
  sigaction(SIGBUS, &before, nullptr);  // not a watched mapping: the previous handler runs next
}

void install() {
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error)) return;
  before = now;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

int watch_mapping(const void* begin, size_t size, const std::string& sentence) {
  std::lock_guard<std::mutex> lock(changing);
  install();
  for (size_t number = 0; number < kMost; ++number) {
    Watched& entry = watched[number];
    if (entry.end.load() != 0) continue;
    size_t length = std::min(sentence.size(), kSentence - 2);
    memcpy(entry.sentence, sentence.data(), length);
    memcpy(entry.sentence + length, "\n", 2);
    uintptr_t first = reinterpret_cast<uintptr_t>(begin);
    entry.begin.store(first, std::memory_order_release);
    entry.end.store(first + size, std::memory_order_release);
    return int(number);
  }
  return -1;
}

void unwatch_mapping(int number) {
  std::lock_guard<std::mutex> lock(changing);
  if (number >= 0 && number < int(kMost)) watched[size_t(number)].end.store(0, std::memory_order_release);
}

}  // namespace dorylus
