#include "isa.h"

#define DORYLUS_TEXT_OF(name) #name
#define DORYLUS_TEXT(name) DORYLUS_TEXT_OF(name)
#define DORYLUS_ENTRY(result, name, Args) name,

namespace dorylus::DORYLUS_ISA {

const Table table = {DORYLUS_TEXT(DORYLUS_ISA), DORYLUS_KERNELS(DORYLUS_ENTRY)};

}  // namespace dorylus::DORYLUS_ISA
