#include "runtime/weights/labels.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/options.h"

namespace moonshard::weights {
namespace {

struct Dtype {
  const char* label;
  c10::ScalarType type;
};
constexpr std::array<Dtype, 10> kDtypes = {{
    {"BOOL", c10::ScalarType::Bool},
    {"U8", c10::ScalarType::Byte},
    {"I8", c10::ScalarType::Char},
    {"I16", c10::ScalarType::Short},
    {"I32", c10::ScalarType::Int},
    {"I64", c10::ScalarType::Long},
    {"F16", c10::ScalarType::Half},
    {"BF16", c10::ScalarType::BFloat16},
    {"F32", c10::ScalarType::Float},
    {"F64", c10::ScalarType::Double},
}};

std::string known_labels() {
  std::vector<const char*> labels;
  for (const Dtype& dtype : kDtypes) labels.push_back(dtype.label);
  return fmt::format("{}", fmt::join(labels, ", "));
}

}  // namespace

c10::ScalarType dtype_from_label(const std::string& label, const std::string& where) {
  for (const Dtype& dtype : kDtypes) {
    if (label == dtype.label) return dtype.type;
  }
  throw IoError(fmt::format("{}: expected a dtype of {}, got {}; convert the file to one of them",
                            where, known_labels(), in_quotes(label)));
}

const char* dtype_label(c10::ScalarType type, const std::string& where) {
  for (const Dtype& dtype : kDtypes) {
    if (type == dtype.type) return dtype.label;
  }
  throw UsageError(fmt::format("{}: expected a tensor of {}, got {}; convert it first", where,
                               known_labels(), c10::toString(type)));
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kShown = 100;
  std::string text = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text + (name.size() > kShown ? "...'" : "'");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string unknown_tensor_message(const std::string& where, const std::string& name,
                                   std::vector<std::string> names) {
  // The nearest of a million names, or of hostile long ones, would take longer than it helps.
  constexpr size_t kMostCompared = 10'000, kLongestCompared = 128;
  const size_t count = names.size();
  names.resize(std::min(count, kMostCompared));
  std::erase_if(names, [](const std::string& other) { return other.size() > kLongestCompared; });
  const std::string near = nearest_name(name, names);
  return fmt::format("{}: expected the name of one of its {} tensors, got {}{}", where, count,
                     in_quotes(name),
                     near.empty() ? "" : fmt::format("; did you mean {}?", in_quotes(near)));
}

}  // namespace moonshard::weights
