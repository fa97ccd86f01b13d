// Mapped files that may be cut short by another process. Reading beyond the new end raises SIGBUS, which by default
// ends a process without a message; this handler names the file.
#pragma once

#include <cstddef>
#include <string>

namespace dorylus {

// From now on, a SIGBUS between `begin` and `begin + size` writes the sentence to standard error and ends the process
// with exit code 1. Returns a number to give to `unwatch_mapping`, or -1 where too many mappings are watched already.
int watch_mapping(const void* begin, size_t size, const std::string& sentence);
void unwatch_mapping(int number);

}  // namespace dorylus
