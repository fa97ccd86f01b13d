// The kernels of one instruction set: compiled once for each, every time into its own namespace.
#pragma once

#include "kernels.h"
#include "vec.h"

namespace dorylus::DORYLUS_ISA {

#define DORYLUS_DECLARE(result, name, Args) result name(const Args&);
DORYLUS_KERNELS(DORYLUS_DECLARE)
#undef DORYLUS_DECLARE

}  // namespace dorylus::DORYLUS_ISA
