#include "viewer/widgets/axis_names.h"

#include <algorithm>

#include <fmt/format.h>

#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

struct AxisWords {
  const char *axis, *title, *unit, *before, *after;
};
constexpr AxisWords kAxisWords[] = {
    {"seq_length", "sequence length", "tokens", "", " tokens"},
    {"batch_size", "batch size", "samples", "batch ", ""},
    {"grad_accum", "accumulation steps", "", "accum ", ""},
    {"image_size", "image size", "pixels", "", " px"},
    {"patch_size", "patch size", "pixels", "patch ", ""},
    {"num_layers", "layers", "", "", " layers"},
    {"hidden_dim", "width", "", "width ", ""},
    {"nproc", "ranks", "", "", " ranks"},
    {"mode", "engine", "", "", ""},
};

const AxisWords* words_of(std::string_view axis) {
  for (const AxisWords& words : kAxisWords) {
    if (axis == words.axis) return &words;
  }
  return nullptr;
}

}  // namespace

std::string shown_name(std::string_view name) {
  std::string shown(name);
  std::ranges::replace(shown, '_', ' ');
  for (const char* matrix : {"ggt", "aat"}) {  // gradients times their transpose
    if (shown.ends_with(std::string(" ") + matrix)) shown.back() = 'T';
  }
  return shown;
}

std::string axis_title(const std::string& axis) {
  const AxisWords* words = words_of(axis);
  return words ? words->title : shown_name(axis);
}

std::string axis_unit(const std::string& axis) {
  const AxisWords* words = words_of(axis);
  return words ? words->unit : "";
}

std::string axis_word(const RunData& run, const std::string& axis, const Value& value, bool alone) {
  if (value.kind == Value::Kind::None) return "";
  if (value.kind == Value::Kind::Bool) return value.number != 0 ? shown_name(axis) : "";
  const std::string text = value_text(run, value);
  if (alone || text.empty()) return text;
  if (const AxisWords* words = words_of(axis)) return words->before + text + words->after;
  return value.kind == Value::Kind::Text ? text : fmt::format("{} {}", shown_name(axis), text);
}

std::string axis_words(const RunData& run, size_t point,
                       std::initializer_list<std::string_view> without) {
  std::string name;
  for (const std::string& axis : run.axes) {
    if (std::ranges::find(without, axis) != without.end()) continue;
    const std::string word = axis_word(run, axis, run.options.get(point, axis), false);
    if (!word.empty()) name += (name.empty() ? "" : ", ") + word;
  }
  return name;
}

}  // namespace moonshard::viewer
