// Kernels of a private step that stand in for faster ones of a plain step.
#pragma once

#include <string>
#include <vector>

namespace moonshard::tracing {

/// Of the time of a kernel that sums up clipped gradients, as an H200 has it: that of a product of
/// the same size.
inline constexpr double kProductOfSum = 0.92;

/// By name: the plain kernel's share of the time of one that stands in for it; 1 for all others.
/// `two_passes`: the step runs backward twice.
std::vector<double> shares_of_plain_kernels(const std::vector<std::string>& names, bool two_passes);

}  // namespace moonshard::tracing
