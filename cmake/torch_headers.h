// The shared precompiled header: what nearly every file that sees torch needs. Parsing it costs
// half a minute, so it is done once. It is an optimisation only: files still include what they use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
