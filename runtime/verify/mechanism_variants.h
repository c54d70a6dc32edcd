// Variants of what a step does besides engines and layers. For cases.cpp, which lists all.
#pragma once

#include <vector>

#include "runtime/verify/cases.h"

namespace moonshard::verify {

/// Drawing samples, noise, division, optimizer.
void add_mechanism_variants(std::vector<Variant>& list);
/// A sample more or less moves the sum by at most the bound.
void add_neighbour_variants(std::vector<Variant>& list);

/// Bounds for the first block, for biases of the others where there are some, and for the rest;
/// they are chosen when gradients are known.
void in_groups(models::ModelOptions& model, privacy::ClipOptions& clip);

}  // namespace moonshard::verify
