// Labels of the safetensors format, and names from untrusted files made safe for error texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace moonshard::weights {

/// "F32" and back; the list is closed. Throws IoError / UsageError naming what was given.
c10::ScalarType dtype_from_label(const std::string& label, const std::string& where);
const char* dtype_label(c10::ScalarType type, const std::string& where);

/// A name from an untrusted file, safe for an error text: quoted, at most 100 bytes, no control
/// characters.
std::string in_quotes(std::string_view name);

/// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

/// What to say when none of `names` is the one asked for; offers the nearest.
std::string unknown_tensor_message(const std::string& where, const std::string& name,
                                   std::vector<std::string> names);

}  // namespace moonshard::weights
