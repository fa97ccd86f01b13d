#include "dispatch.h"

#include <atomic>

namespace dorylus {

namespace {

std::vector<const Table*> tables() {
  std::vector<const Table*> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  bool fma = __builtin_cpu_supports("fma");
  if (wide && fma) found.push_back(&avx512::table);
  if (__builtin_cpu_supports("avx2") && fma) found.push_back(&avx2::table);
  found.push_back(&baseline::table);
#elif defined(__aarch64__)
  found.push_back(&neon::table);
#else
  found.push_back(&baseline::table);
#endif
  return found;
}

std::atomic<const Table*>& in_use() {
  static std::atomic<const Table*> table{tables().front()};
  return table;
}

}  // namespace

const Table& chosen() { return *in_use().load(std::memory_order_relaxed); }

std::vector<std::string> available() {
  std::vector<std::string> names;
  for (const Table* table : tables()) names.emplace_back(table->name);
  return names;
}

bool choose(const std::string& name) {
  for (const Table* table : tables())
    if (table->name == name) {
      in_use() = table;
      return true;
    }
  return false;
}

}  // namespace dorylus
