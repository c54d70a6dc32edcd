// What a step of a decoder costs, in the letters of model_cost.h.
#pragma once

#include "runtime/models/model_cost.h"

namespace moonshard::models {

double decoder_flops_per_token(const ModelOptions& o, int64_t tokens);
ActivationBytes decoder_activation_bytes(const ModelOptions& o, const CostDtypes& f, int64_t T);

}  // namespace moonshard::models
