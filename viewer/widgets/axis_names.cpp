#include "viewer/widgets/axis_names.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_set>

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

// A reader looks for these even where they follow from the rest.
constexpr std::array<std::string_view, 7> kAlwaysTold = {
    "mode", "model", "sharding", "parallel", "batch_size", "seq_length", "grad_accum"};

// Equal for equal values of one run, whose texts are shared.
uint64_t mark_of(const Value& value) {
  return (std::bit_cast<uint64_t>(value.number) ^ (static_cast<uint64_t>(value.text) << 20)) *
             0x9E3779B97F4A7C15ull +
         static_cast<uint64_t>(value.kind);
}

using Marks = std::vector<uint64_t>;  // one per point

// Into how many groups these columns split the points.
size_t count_groups(const std::vector<Marks>& columns, const std::vector<bool>& kept) {
  if (columns.empty()) return 1;
  std::unordered_set<uint64_t> seen;
  for (size_t p = 0; p < columns[0].size(); ++p) {
    uint64_t mark = 1469598103934665603ull;
    for (size_t c = 0; c < columns.size(); ++c) {
      if (kept[c]) mark = (mark ^ columns[c][p]) * 1099511628211ull + c;
    }
    seen.insert(mark);
  }
  return seen.size();
}

// In a comparison of models each may have its own batch and length: the model's name tells them.
// As in the scripts' figures (plot_points.lua).
void drop_what_models_imply(const std::vector<std::string>& axes, const std::vector<Marks>& columns,
                            std::vector<bool>& kept) {
  const auto model = std::ranges::find(axes, "model");
  if (model == axes.end()) return;
  const auto place = static_cast<size_t>(model - axes.begin());
  std::vector<bool> asked(axes.size(), false);
  asked[place] = true;
  const size_t models = count_groups(columns, asked);
  for (size_t c = 0; c < axes.size(); ++c) {
    if (c == place) continue;
    asked[c] = true;
    if (count_groups(columns, asked) == models) kept[c] = false;
    asked[c] = false;
  }
}

// Names of so many words leave out what most steps are anyway.
constexpr size_t kManyAxes = 5;
struct UsualValue {
  std::string_view axis, value;
};
constexpr UsualValue kUsual[] = {
    {"grad_accum", "1"},  {"replicate", "1"},        {"lora_rank", "0"},
    {"nproc", "1"},       {"world", "auto"},         {"wrap", "module"},
    {"parallel", "none"}, {"checkpointing", "none"}, {"backward_prefetch", "pre"}};

// Switches that most points of the run have on: in names of many words they are told where they are
// off.
using Switches = std::set<std::string>;

Switches switches_mostly_on(const RunData& run, const std::vector<std::string>& axes) {
  constexpr size_t kMostLookedAt = 256;  // enough to tell
  const size_t count = std::min(run.points.size(), kMostLookedAt);
  Switches found;
  for (const std::string& axis : axes) {
    const std::optional<size_t> place = run.options.find(axis);
    if (!place || axes.size() < kManyAxes) continue;
    size_t on = 0;
    for (size_t p = 0; p < count; ++p) on += run.options.at(p, *place).number != 0;
    if (2 * on > count) found.insert(axis);
  }
  return found;
}

bool is_usual(std::string_view axis, const std::string& text, bool tells_sharding) {
  if (axis == "parallel" && text == "fsdp") return tells_sharding;
  return std::ranges::any_of(
      kUsual, [&](const UsualValue& usual) { return usual.axis == axis && usual.value == text; });
}

bool has_one_rank(const RunData& run, size_t point) {
  const Value ranks = run.options.get(point, "nproc"), world = run.options.get(point, "world");
  return ranks.kind == Value::Kind::Number && ranks.number <= 1 &&
         (world.kind == Value::Kind::None || value_text(run, world) == "auto");
}

// Options that mean nothing to a point that is not sharded; as in the scripts' figures
// (plot_points.lua). In names of many words also those that mean nothing to a single rank.
bool is_unused(const RunData& run, size_t point, std::string_view axis, bool many) {
  constexpr std::array<std::string_view, 6> kOnlySharded = {
      "sharding", "backward_prefetch", "forward_prefetch", "limit_all_gathers",
      "wrap",     "cpu_offload"};
  constexpr long kOfSeveralRanks = 4;  // the first of them
  const auto found = std::ranges::find(kOnlySharded, axis);
  if (found == kOnlySharded.end()) return false;
  if (many && found - kOnlySharded.begin() < kOfSeveralRanks && has_one_rank(run, point))
    return true;
  const Value parallel = run.options.get(point, "parallel");
  return parallel.kind == Value::Kind::Text && run.text_of(parallel) != "fsdp";
}

// How a point is measured, or what only one engine reads: another value makes no other line.
bool is_side_option(std::string_view axis) {
  constexpr std::array<std::string_view, 7> kSide = {
      "profile",          "iters",     "warmup",         "memory_history",
      "memory_budget_mb", "tile_size", "flash_algorithm"};
  return std::ranges::find(kSide, axis) != kSide.end();
}

// Another name of the place on these axes: the world of so many nodes. Judged by the whole run, of
// which a chart may show a few points.
bool is_same_place(const RunData& run, const std::string& axis,
                   const std::vector<std::string>& over) {
  std::vector<Marks> columns;
  for (const std::string& name : over) {
    const std::optional<size_t> place = run.options.find(name);
    if (!place) continue;
    columns.emplace_back();
    for (size_t p = 0; p < run.points.size(); ++p)
      columns.back().push_back(mark_of(run.options.at(p, *place)));
  }
  const std::optional<size_t> place = run.options.find(axis);
  if (columns.empty() || !place) return false;
  const size_t places = count_groups(columns, std::vector<bool>(columns.size(), true));
  Marks own;
  for (size_t p = 0; p < run.points.size(); ++p) own.push_back(mark_of(run.options.at(p, *place)));
  // One value for each place and one place for each value.
  if (places == run.points.size() || count_groups({own}, {true}) != places) return false;
  columns.push_back(std::move(own));
  return count_groups(columns, std::vector<bool>(columns.size(), true)) == places;
}

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

std::vector<std::string> telling_axes(const RunData& run, const std::vector<size_t>& points,
                                      const std::vector<std::string>& over) {
  std::vector<std::string> axes;
  std::vector<Marks> columns;
  for (const std::string& axis : run.axes) {
    const std::optional<size_t> place = run.options.find(axis);
    if (!place || points.empty() || std::ranges::find(over, axis) != over.end()) continue;
    const bool always = std::ranges::find(kAlwaysTold, axis) != kAlwaysTold.end();
    if (!over.empty() && !always && (is_side_option(axis) || is_same_place(run, axis, over)))
      continue;
    Marks marks;
    for (const size_t point : points) marks.push_back(mark_of(run.options.at(point, *place)));
    if (std::ranges::all_of(marks, [&](uint64_t mark) { return mark == marks[0]; })) continue;
    axes.push_back(axis);
    columns.push_back(std::move(marks));
  }
  std::vector<bool> kept(axes.size(), true);
  const size_t groups = count_groups(columns, kept);
  for (size_t c = axes.size(); c-- > 0;) {  // what stands last in a sweep matters least
    if (std::ranges::find(kAlwaysTold, axes[c]) != kAlwaysTold.end()) continue;
    kept[c] = false;
    kept[c] = count_groups(columns, kept) < groups;
  }
  drop_what_models_imply(axes, columns, kept);
  std::vector<std::string> telling;
  for (size_t c = 0; c < axes.size(); ++c) {
    if (kept[c]) telling.push_back(axes[c]);
  }
  return telling;
}

static std::string words_of(const RunData& run, size_t point, const std::vector<std::string>& axes,
                            bool alone, const Switches& mostly_on) {
  std::string name;
  const bool tells_sharding = std::ranges::find(axes, "sharding") != axes.end();
  const bool many = axes.size() >= kManyAxes;
  for (const std::string& axis : axes) {
    const bool single = alone && axes.size() == 1;
    const Value value = run.options.get(point, axis);
    if (!single && is_unused(run, point, axis, many)) continue;
    std::string word = axis_word(run, axis, value, single);
    // Where others are wrapped, and no way to shard says so; beside other words "none" could be the
    // engine's.
    const bool is_unwrapped =
        axis == "parallel" && word == "none" &&
        (many ? tells_sharding && has_one_rank(run, point) : !single && axes.size() > 1);
    if (is_unwrapped) {
      word = "unwrapped";
    } else if (many && is_usual(axis, value_text(run, value), tells_sharding)) {
      continue;
    }
    // Among other words a bare "none" could be of any of them.
    const bool is_bare = word == "none" && axis != "mode" && axis != "parallel";
    if (many && is_bare) word = "no " + shown_name(axis);
    if (value.kind == Value::Kind::Bool && mostly_on.contains(axis)) {
      word = value.number != 0 ? "" : "no " + shown_name(axis);
    }
    if (!word.empty()) name += (name.empty() ? "" : ", ") + word;
  }
  return name;
}

std::string words_of_axes(const RunData& run, size_t point, const std::vector<std::string>& axes,
                          bool alone) {
  return words_of(run, point, axes, alone, switches_mostly_on(run, axes));
}

std::vector<std::string> words_of_points(const RunData& run, const std::vector<size_t>& points,
                                         const std::vector<std::string>& axes, bool alone) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<size_t>> alike;  // places in the list
  const Switches mostly_on = switches_mostly_on(run, axes);
  for (size_t i = 0; i < points.size(); ++i) {
    names.push_back(words_of(run, points[i], axes, alone, mostly_on));
    alike[names.back()].push_back(i);
  }
  for (const auto& [name, places] : alike) {
    for (const std::string& axis : axes) {
      const auto text = [&](size_t place) {
        return value_text(run, run.options.get(points[place], axis));
      };
      // What means nothing to one of them tells it from no other.
      const auto unused = std::ranges::count_if(
          places, [&](size_t place) { return is_unused(run, points[place], axis, false); });
      if (unused > 0 && unused < static_cast<long>(places.size())) continue;
      const std::string first = text(places[0]);
      if (std::ranges::all_of(places, [&](size_t place) { return text(place) == first; })) continue;
      for (const size_t place : places) {
        names[place] +=
            fmt::format("{}{} {}", names[place].empty() ? "" : ", ", shown_name(axis), text(place));
      }
    }
  }
  return names;
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
