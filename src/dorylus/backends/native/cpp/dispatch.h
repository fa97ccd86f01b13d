// Which instruction set runs: the best one this processor has, unless a test chooses another.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace dorylus {

std::vector<std::string> available();  // best first
bool choose(const std::string& name);  // false when this processor (or this build) has no such set

}  // namespace dorylus
