// The options of a model by themselves, for what is not a whole experiment.
#pragma once

#include "runtime/base/options.h"

namespace moonshard::models {

const OptionSchema& model_schema();

}  // namespace moonshard::models
