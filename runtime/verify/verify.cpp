#include "runtime/verify/verify.h"

#include <ATen/ATen.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/models/registry.h"
#include "runtime/verify/bench.h"
#include "runtime/verify/cases.h"
#include "runtime/verify/neighbours.h"

namespace moonshard::verify {
namespace {

template <class List, class NameOf>
void expect_known(const std::string& name, const char* what, const List& list, NameOf name_of) {
  if (name.empty()) return;
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(name_of(item));
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  fail_unknown_name(fmt::format("verify: option '{}'", what), name, names);
}

// The reference holds every sample's gradient twice, in double: a model that cannot fit is refused,
// rather than killed for memory.
void expect_room(const VerifyOptions& options) {
  models::ModelOptions shapes;
  shapes.model = options.model;
  shapes.device = "meta";
  const double need = static_cast<double>(models::make_model(shapes)->num_parameters()) * 8 * 5 * 3;
  const double room = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  MS_CHECK(
      need < room,
      "verify: model '{}' needs about {:.0f} GiB for its per-sample gradients, this machine has "
      "{:.0f}; verify the family's -tiny preset, it has the same kinds of layers",
      options.model, need / 1073741824.0, room / 1073741824.0);
}

std::set<std::string> trained_cases(const Subject& subject, const Variant& variant) {
  models::ModelOptions shapes;
  privacy::ClipOptions clip;
  train::StepOptions step;
  shapes.model = subject.model;
  shapes.task = subject.task;
  shapes.device = "meta";
  variant.apply(shapes, clip, step);
  shrink(variant, shapes);
  const auto model = models::make_model(shapes);
  std::set<std::string> found;
  for (const auto& layer : model->layers())
    if (layer->trainable()) found.insert(layer_case(*model, *layer));
  return found;
}

}  // namespace

std::vector<Cell> verify(const VerifyOptions& options, const Observer& observer) {
  const std::string wanted_engine = privacy::canonical_engine(options.engine);
  expect_known(wanted_engine, "engine", privacy::engine_names(), [](auto& name) { return name; });
  expect_known(options.options, "options", variants(), [](auto& variant) { return variant.name; });
  expect_known(options.dtype, "dtype", formats(), [](auto& format) { return format.name; });
  if (!options.model.empty()) expect_room(options);
  const auto world = sharding::real_world("verify", options.sharding);
  std::vector<Cell> cells;
  for (const Subject& subject : subjects(options.model)) {
    for (const Variant& variant : variants()) {
      if (!options.options.empty() && variant.name != options.options) continue;
      if (!applies(variant, options.sharding)) continue;
      for (const Format& format : formats()) {
        if (!options.dtype.empty() && format.name != options.dtype) continue;
        if (!applies(variant, subject, format)) continue;
        if (options.options.empty() &&
            !is_chosen(variant, subject, !options.model.empty(), world->size()))
          continue;
        throw_if_interrupted();
        std::optional<Bench> bench;
        std::optional<Neighbours> neighbours;
        if (variant.neighbours) {
          neighbours.emplace(options, subject, variant, format, world);
        } else {
          bench.emplace(options, subject, variant, format, world);
        }
        for (const std::string& engine : privacy::engine_names()) {
          if (!wanted_engine.empty() && engine != wanted_engine) continue;
          if (!applies(variant, engine)) continue;
          const bool asked_for = !wanted_engine.empty() || !options.options.empty();
          if (!asked_for && world->size() > 1 && variant.presets == Variant::Presets::One &&
              !stands_for_all(engine))
            continue;
          for (Cell& cell : neighbours ? neighbours->run(engine) : bench->run(engine, observer)) {
            if (observer.cell) observer.cell(cell);
            cells.push_back(std::move(cell));
          }
        }
      }
    }
  }
  MS_CHECK(!cells.empty(),
           "verify: expected options that name at least one cell, got none: engine '{}', model "
           "'{}' and options '{}' do not go together",
           options.engine, options.model, options.options);
  return cells;
}

Json to_json(const std::vector<Cell>& cells, const VerifyOptions& options) {
  Json list = Json::array();
  int64_t failed = 0;
  for (const Cell& cell : cells) {
    Json entry{{"engine", cell.engine},       {"model", cell.model},     {"task", cell.task},
               {"layer", cell.layer},         {"options", cell.options}, {"dtype", cell.dtype},
               {"tolerance", cell.tolerance}, {"ok", cell.ok},           {"worst", cell.worst}};
    // JSON has no infinity: a failed cell without a figure is null.
    entry["max_rel_err"] = std::isfinite(cell.max_rel_err) ? Json(cell.max_rel_err) : Json(nullptr);
    if (!cell.error.empty()) entry["error"] = cell.error;
    failed += cell.ok ? 0 : 1;
    list.push_back(std::move(entry));
  }
  Json report{{"cells", std::move(list)}, {"failed", failed}};
  sharding::add_wrapper(report, options.sharding);
  return report;
}

std::vector<Support> support_table() {
  std::vector<Support> table;
  std::map<std::string, std::set<std::string>> cases;  // the same for all engines
  for (const privacy::EngineDescription& info : privacy::engine_descriptions()) {
    if (!info.built_in) continue;  // not verified
    const std::string& engine = info.name;
    std::set<std::string> layers, presets, options, dtypes;
    for (const Subject& subject : subjects("")) {
      presets.insert(subject.model);
      for (const Variant& variant : variants()) {
        const Format& format = formats()[variant.mixes_dtypes ? 1 : 0];
        if (!applies(variant, engine) || !applies(variant, subject, format)) continue;
        if (variant.apply_sharding != nullptr) {
          options.insert(variant.name);
          continue;
        }
        auto& known = cases[fmt::format("{} {} {}", subject.model, subject.task, variant.name)];
        if (known.empty()) known = trained_cases(subject, variant);
        layers.insert(known.begin(), known.end());
        options.insert(variant.name);
      }
    }
    for (const Format& format : formats()) dtypes.insert(format.name);
    const auto list = [](const std::set<std::string>& names) {
      return std::vector<std::string>(names.begin(), names.end());
    };
    table.push_back({engine, list(layers), list(presets), list(options), list(dtypes)});
  }
  return table;
}

}  // namespace moonshard::verify
