// The plan panel: what training would need on a machine nobody has yet. Knobs above; below them the
// memory of a rank by owner against the device's limit, the step by phase, and the front of time
// against memory. The figures are those of `moonshard plan`, which runs beside the viewer whenever
// a knob rests.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <imgui.h>

#include "runtime/analysis/rows.h"
#include "runtime/base/json.h"
#include "runtime/privacy/engine_names.h"
#include "runtime/profile/owner_names.h"
#include "viewer/data/plan_answer.h"
#include "viewer/panels/chart_panel.h"
#include "viewer/panels/trace_text.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/colors.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr double kSecondsBetweenAsks = 0.3;  // while a slider moves
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

using records::PlotKind;
using records::PlotPanel;
using records::PlotSeries;

/// A bar of the two bar charts.
struct PlanBar {
  const char* name;
  const PlannedRow* row;
};

int color_of(const std::string& name) {
  const std::optional<size_t> known = named_series_color(name);
  return known ? static_cast<int>(*known) : -1;
}

// Parts of bars in the order of `names`, with a series for each that some bar has.
void add_parts(PlotPanel& panel, const std::vector<PlanBar>& bars,
               const std::vector<std::string>& names,
               std::vector<std::pair<std::string, double>> PlannedRow::*parts, double factor) {
  for (const std::string& name : names) {
    PlotSeries series;
    series.name = name;
    std::ranges::replace(series.name, '_', ' ');
    series.color = color_of(name);
    double sum = 0;
    for (size_t i = 0; i < bars.size(); ++i) {
      double value = 0;
      for (const auto& [part, amount] : bars[i].row->*parts)
        if (part == name) value += amount;
      series.x.push_back(static_cast<double>(i));
      series.y.emplace_back(value * factor);
      series.labels.push_back(bars[i].row->words);
      sum += value;
    }
    if (sum > 0) panel.series.push_back(std::move(series));
  }
  for (const PlanBar& bar : bars) panel.x.categories.emplace_back(bar.name);
}

PlotPanel memory_panel(const std::vector<PlanBar>& bars, double limit_bytes) {
  PlotPanel panel;
  panel.kind = PlotKind::StackedBars;
  panel.title = "memory of a rank at its peak";
  panel.y = {.label = "memory", .unit = "GiB"};
  std::vector<std::string> names;
  for (const profile::OwnerName& owner : profile::kOwnerNames) names.emplace_back(owner.name);
  names.emplace_back("rest");
  add_parts(panel, bars, names, &PlannedRow::owners, 1 / kGiB);
  double most = limit_bytes;
  for (const PlanBar& bar : bars) most = std::max(most, bar.row->peak_bytes);
  panel.y.max = most / kGiB * 1.12;
  panel.references.push_back(
      {fmt::format("{:.0f} GiB of the device", limit_bytes / kGiB), "", {}, {limit_bytes / kGiB}});
  return panel;
}

PlotPanel time_panel(const std::vector<PlanBar>& bars) {
  PlotPanel panel;
  panel.kind = PlotKind::StackedBars;
  panel.title = "step by phase";
  double longest = 0;
  std::vector<std::string> names;
  for (const PlanBar& bar : bars) {
    longest = std::max(longest, bar.row->step_ms);
    for (const auto& [phase, ms] : bar.row->phases) names.push_back(phase);
  }
  const Unit unit = time_unit(longest);
  panel.y = {.label = "step time", .unit = unit.name};
  add_parts(panel, bars, analysis::phases_in_order(names), &PlannedRow::phases, unit.factor);
  return panel;
}

PlotPanel front_panel(const PlannedRow& own, const std::vector<PlannedRow>& front,
                      double limit_bytes) {
  PlotPanel panel;
  panel.kind = PlotKind::Scatter;
  panel.title = "time against memory";
  double longest = own.step_ms;
  for (const PlannedRow& row : front) longest = std::max(longest, row.step_ms);
  const Unit unit = time_unit(longest);
  panel.x = {.label = "peak memory of a rank", .unit = "GiB", .min = 0.0};
  panel.y = {.label = "step time", .unit = unit.name, .min = 0.0};
  const auto add = [&](PlotSeries& series, const PlannedRow& row) {
    series.x.push_back(row.peak_bytes / kGiB);
    series.y.emplace_back(row.step_ms * unit.factor);
    series.labels.push_back(row.words);
  };
  PlotSeries others{.name = "no other is faster and smaller", .x = {}, .y = {}};
  others.color = 0;
  for (const PlannedRow& row : front) add(others, row);
  PlotSeries this_one{.name = "as set", .x = {}, .y = {}};
  this_one.color = 3;
  add(this_one, own);
  if (!others.x.empty()) panel.series.push_back(std::move(others));
  panel.series.push_back(std::move(this_one));
  // Where the limit is far away it would press all points together.
  double widest = own.peak_bytes;
  for (const PlannedRow& row : front) widest = std::max(widest, row.peak_bytes);
  if (limit_bytes < 3 * widest) panel.references.push_back({"limit", "", {limit_bytes / kGiB}, {}});
  return panel;
}

std::string row_words(const PlannedRow& row, double limit_bytes) {
  std::string time = format_time(row.step_ms * 1e3);
  if (row.high_ms > 0)
    time += fmt::format(" (90 % range {} to {})", format_time(row.low_ms * 1e3),
                        format_time(row.high_ms * 1e3));
  return fmt::format("{}: {:.1f} of {:.0f} GiB, {}, {} tokens/s", row.words, row.peak_bytes / kGiB,
                     limit_bytes / kGiB, time, format_number(std::round(row.tokens_per_s)));
}

class PlanPanel final : public ChartPanel {
 public:
  PlanPanel() : ChartPanel({"plan", "Plan", DockPlace::Charts}, ChartSubject::ShownPoints) {}

  std::string script(const Workspace&) const override {
    std::string words = "-- moonshard";
    for (const std::string& word : prediction_words(asked_)) words += " " + word;
    return words + "\n";
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    take_models(context);
    if (!was_set_) take_selected(context);
    const PlanKnobs before = knobs_;
    bool rests = true;  // no slider is held
    draw_names();
    draw_numbers(rests);
    if (knobs_ != before) changed_ = true;
    if (const std::optional<PointRef> ref = context.workspace.selected_point()) {
      continue_line(12 * ImGui::GetFontSize(), true);
      if (ImGui::Button("as the selected point")) take_selected(context);
      ImGui::SetItemTooltip("Sets the knobs as the selected point's options are.");
    }
    const double now = ImGui::GetTime();
    if (changed_ && (rests || now - asked_at_ > kSecondsBetweenAsks)) {
      for (const ReadRequest& request :
           {request_of(prediction_words(asked_)), request_of(search_words(asked_))})
        context.store.cancel(request);
      asked_ = knobs_;
      asked_at_ = now;
      changed_ = false;
      remake();
    }
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Loaded<std::string> own = ask(context, prediction_words(asked_));
    const Loaded<std::string> others = ask(context, search_words(asked_));
    chart.waiting = own.loading && !own.value;
    if (!own.value && !own.loading) {
      chart.empty_what = "This configuration cannot be planned";
      chart.empty_next = clean_text(own.error);
      return;
    }
    if (!own.value) {
      if (last_.panels.empty()) return;
      chart.spec = last_;  // what was there stays until the answer comes
      return;
    }
    try {
      fill(plan_answer(*own.value), others.value ? plan_answer(*others.value) : PlanAnswer{},
           others.error, chart);
      last_ = chart.spec;
    } catch (const Error& problem) {
      chart.empty_what = "The answer of moonshard plan cannot be read";
      chart.empty_next = clean_text(problem.what());
    }
  }

 private:
  static ReadRequest request_of(const std::vector<std::string>& words) {
    return {ReadRequest::Kind::Program, "", words};
  }
  static Loaded<std::string> ask(const PanelContext& context,
                                 const std::vector<std::string>& words) {
    const ReadRequest request = request_of(words);
    Loaded<std::string> loaded = context.store.file<std::string>(request);
    if (loaded.value || loaded.loading || loaded.error != "cancelled") return loaded;
    context.store.retry(request);  // other knobs were asked for in between
    return context.store.file<std::string>(request);
  }

  void fill(const PlanAnswer& own, const PlanAnswer& others, const std::string& search_error,
            Chart& chart) {
    const bool fits = !own.plans.empty();
    if (!fits && own.too_large.empty()) {
      chart.empty_what = "moonshard plan gave no figures for this";
      return;
    }
    const PlannedRow& row = fits ? own.plans.front() : own.too_large.front();
    std::vector<PlanBar> bars{{"as set", &row}};
    if (!others.plans.empty()) bars.push_back({"fastest that fits", &others.plans.front()});
    const auto least = std::ranges::min_element(others.front, {}, &PlannedRow::peak_bytes);
    if (least != others.front.end()) bars.push_back({"least memory", &*least});
    chart.spec.title = fmt::format("Modelled: {}, {}, {} x {}", model_words(asked_), asked_.engine,
                                   own.ranks, own.device);
    chart.spec.columns = 3;
    chart.spec.panels = {memory_panel(bars, own.memory_bytes), time_panel(bars),
                         front_panel(row, others.front, own.memory_bytes)};
    std::string note = "As set, " + row_words(row, own.memory_bytes) + ".";
    if (!fits) note += " It does not fit" + (row.why.empty() ? "." : ": " + row.why + ".");
    if (!others.plans.empty())
      note += " Fastest that fits, of " + std::to_string(others.tried) +
              " tried with as many samples, " + row_words(others.plans.front(), own.memory_bytes) +
              ".";
    else if (!search_error.empty() && search_error != "cancelled")
      note += " No search: " + search_error + ".";
    if (!own.assumptions.empty()) note += " Modelled; " + own.assumptions.front() + ".";
    add_note(chart, clean_text(note, 2000));
  }

  void take_models(const PanelContext& context) {
    if (models_.size() > 1) return;
    const Loaded<std::string> loaded = ask(context, {"models", "--json"});
    if (!loaded.value) return;
    try {
      const Json table = parse_json(*loaded.value, "moonshard models");
      for (const Json& row : table) models_.push_back(row.at("name").get<std::string>());
    } catch (const std::exception&) {  // the field remains: a name can be taken from a point
    }
    if (models_.empty()) models_.push_back(knobs_.model);
  }

  // Options of a measured point, as far as there are knobs for them.
  void take_selected(const PanelContext& context) {
    const std::optional<PointRef> ref = context.workspace.selected_point();
    if (!ref) return;
    was_set_ = true;
    const auto text = [&](const char* name, std::string& into) {
      const std::string value = context.workspace.option_text(*ref, name);
      if (!value.empty() && value != "-") into = value;
    };
    const auto number = [&](const char* name, int& into) {
      std::string value;
      text(name, value);
      const double found = std::strtod(value.c_str(), nullptr);
      if (found >= 1 && found < 1e7) into = static_cast<int>(found);
    };
    text("model", knobs_.model);
    text("mode", knobs_.engine);
    text("checkpointing", knobs_.checkpointing);
    text("optimizer", knobs_.optimizer);
    text("param_dtype", knobs_.compute);
    number("batch_size", knobs_.batch);
    number("grad_accum", knobs_.micro_batches);
    number("seq_length", knobs_.tokens);
    knobs_.lora_rank = 0;
    number("lora_rank", knobs_.lora_rank);
    knobs_.more.clear();
    for (const auto& [option, flag] :
         {std::pair("task", "--task"), {"num_layers", "--num-layers"}}) {
      std::string value;
      text(option, value);
      if (value.empty() || value == "0") continue;
      knobs_.more.emplace_back(flag);
      knobs_.more.push_back(value);
    }
    std::string parallel, sharding, offload, world;
    text("parallel", parallel);
    text("sharding", sharding);
    text("cpu_offload", offload);
    text("world", world);
    if (!parallel.empty()) knobs_.wrapper = parallel == "fsdp" ? sharding : parallel;
    knobs_.offload = offload == "true" || offload == "yes";
    knobs_.nodes = 1;
    knobs_.gpus = 1;
    number("nproc", knobs_.gpus);
    if (world.starts_with("fake:")) knobs_.gpus = std::atoi(world.c_str() + 5);
    // A simulated world names its nodes: "modelled:1024 = 128 x 8 h200, infiniband".
    int ranks = 0, nodes = 0, gpus = 0;
    if (std::sscanf(world.c_str(), "modelled:%d = %d x %d", &ranks, &nodes, &gpus) == 3) {
      knobs_.nodes = std::clamp(nodes, 1, 256);
      knobs_.gpus = gpus;
    }
    knobs_.gpus = std::clamp(knobs_.gpus, 1, 16);
    changed_ = true;
  }

  void draw_names() {
    const float em = ImGui::GetFontSize();
    const auto pick = [&](const char* label, std::string& value, std::vector<std::string> names,
                          float width, bool first = false) {
      if (std::ranges::find(names, value) == names.end()) names.push_back(value);
      const float whole = width * em + ImGui::CalcTextSize(label).x + em;
      if (!first) continue_line(whole, true);
      ImGui::SetNextItemWidth(width * em);
      pick_name(label, value, names);
    };
    const std::string model = knobs_.model;
    pick("model", knobs_.model, models_, 10, true);
    if (knobs_.model != model) knobs_.more.clear();  // another model has its own task and layers
    pick("engine", knobs_.engine, privacy::engine_names(), 10);
    pick("machine", knobs_.machine, {"h200", "h100", "a100", "cpu"}, 5);
    pick("wrapper", knobs_.wrapper, {"none", "ddp", "zero2", "zero3"}, 5);
    pick("checkpointing", knobs_.checkpointing, {"none", "block", "keep_attention"}, 8);
    pick("optimizer", knobs_.optimizer, {"sgd", "adam", "adamw"}, 5.5f);
    pick("compute", knobs_.compute, {"bfloat16", "float32"}, 6);
    const bool is_sharded = knobs_.wrapper.starts_with("zero");
    ImGui::BeginDisabled(!is_sharded);
    choose_whether({"offload",
                    "Parameters, gradients and optimizer state live in the host's memory "
                    "(zero2 and zero3)."},
                   knobs_.offload);
    ImGui::EndDisabled();
  }

  // Powers of two on a slider: counts of GPUs, samples and tokens are spread over decades.
  void slider(const char* label, int& value, int most, float width, bool& rests, int least = 1) {
    const float em = ImGui::GetFontSize();
    continue_line(width * em + ImGui::CalcTextSize(label).x + em, true);
    ImGui::SetNextItemWidth(width * em);
    ImGui::SliderInt(label, &value, least, most, "%d",
                     ImGuiSliderFlags_Logarithmic | ImGuiSliderFlags_AlwaysClamp);
    if (ImGui::IsItemActive()) rests = false;
  }

  void draw_numbers(bool& rests) {
    slider("GPUs of a node", knobs_.gpus, 16, 6, rests);
    slider("nodes", knobs_.nodes, 256, 6, rests);
    slider("batch of a rank", knobs_.batch, 512, 6, rests);
    slider("micro-batches", knobs_.micro_batches, 64, 6, rests);
    slider("tokens", knobs_.tokens, 131072, 8, rests);
    slider("LoRA rank", knobs_.lora_rank, 256, 6, rests, 0);
  }

  PlanKnobs knobs_, asked_;
  std::vector<std::string> models_;
  records::PlotSpec last_;
  bool changed_ = true, was_set_ = false;
  double asked_at_ = -1;
};

}  // namespace

const MakePanel make_plan_panel = make_panel<PlanPanel>;

}  // namespace moonshard::viewer
