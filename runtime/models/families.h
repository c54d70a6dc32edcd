// The families of models that the program has: the one list. A new family is its own folder
// (families/<name>/), its header here and its name in the list.
#pragma once

#include "runtime/models/families/decoder/decoder_options.h"
#include "runtime/models/families/dit/dit_options.h"
#include "runtime/models/families/linear/linear_options.h"

namespace moonshard::models {

using Families = FamilyList<DecoderEntry, DitEntry, LinearEntry>;

}  // namespace moonshard::models
