// The privacy panel: what the selected point's result claims, beside the same computed again; how
// its samples' gradient norms lie around the clipping bound, and how many were clipped.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "runtime/records/schema_json.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/panels/privacy_verdict.h"
#include "viewer/script.h"
#include "viewer/widgets/definitions.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxBins = 4096;
constexpr size_t kMaxSteps = 4000;  // drawn

// Who has the seed can take the noise away again.
std::string noise_source(const std::string& noise) {
  if (noise == "none") return "";  // plain training draws nothing
  if (noise == "counter") return "the seed (reproducible noise: not private)";
  return noise == "secure" ? "a secret" : clean_text(noise, 32);
}

bool is_rising(const std::vector<double>& edges) {
  const auto finite = [](double edge) { return std::isfinite(edge); };
  return std::ranges::all_of(edges, finite) &&
         std::ranges::adjacent_find(edges, std::ranges::greater_equal()) == edges.end();
}

// A histogram of uneven bins as a staircase over the numbers themselves, so that the bound stands
// where it is.
bool add_norms(const NamedDetail& point, Chart& chart) {
  const PrivacyPart& claim = point.detail->privacy;
  const std::vector<double>&edges = claim.norms_histogram.edges,
        &counts = claim.norms_histogram.counts;
  if (counts.empty() || edges.size() != counts.size() + 1 || edges.size() > kMaxBins ||
      !is_rising(edges)) {
    return false;
  }
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedArea;
  panel.title = "Gradient norms of samples in the watched step";
  panel.x.label = "norm";
  panel.x.log_scale = edges.front() > 0;
  panel.y.label = "samples";
  records::PlotSeries series;
  series.name = "samples";
  double total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double count = std::isfinite(counts[i]) ? counts[i] : 0;
    total += count;
    for (const double edge : {edges[i], edges[i + 1]}) {
      series.x.push_back(edge);
      series.y.push_back(std::max(count, 0.0));
      series.labels.push_back(
          fmt::format("norms from {} to {}", format_number(edges[i]), format_number(edges[i + 1])));
    }
  }
  if (!(total > 0)) return false;
  if (std::isfinite(claim.max_grad_norm) && claim.max_grad_norm > 0) {
    const std::string text = "clipping bound " + format_tick(claim.max_grad_norm);
    panel.references.push_back({text, "", {claim.max_grad_norm}, {}});
    // Air around the line, which may be the first or last thing on the axis.
    const double low = std::min(edges.front(), claim.max_grad_norm);
    const double high = std::max(edges.back(), claim.max_grad_norm);
    const double air = panel.x.log_scale ? std::pow(high / low, 0.06) : 0.06 * (high - low);
    panel.x.min = panel.x.log_scale ? low / air : low - air;
    panel.x.max = panel.x.log_scale ? high * air : high + air;
  }
  panel.series.push_back(std::move(series));
  chart.spec.panels.push_back(std::move(panel));
  return true;
}

bool add_clip_fraction(const NamedDetail& point, Chart& chart) {
  records::PlotPanel panel;
  panel.kind = records::PlotKind::Lines;
  panel.title = "Clipped samples";
  panel.x.label = "step";
  panel.y = {"clip fraction", "%"};
  panel.y.min = -4.0;  // marks at either end stay whole
  panel.y.max = 104.0;
  records::PlotSeries series;
  series.name = "clipped";
  series.color = 1;
  const std::vector<StepRow>& steps = point.detail->steps;
  const size_t count = std::min(steps.size(), kMaxSteps);
  for (size_t i = 0; i < count; ++i) {
    const StepRow& step = steps[count < steps.size() ? i * steps.size() / count : i];
    if (!std::isfinite(step.clip_fraction) || !std::isfinite(step.step)) continue;
    series.x.push_back(step.step);
    series.y.push_back(100 * step.clip_fraction);
    series.labels.push_back(step.warmup ? "warm-up" : "");
  }
  // Plain training writes zeros: it has nothing to clip.
  const bool clips =
      std::ranges::any_of(series.y, [](const std::optional<double>& y) { return *y > 0; });
  if (series.x.empty() || (!clips && !point.detail->privacy.private_engine)) return false;
  panel.series.push_back(std::move(series));
  chart.spec.panels.push_back(std::move(panel));
  return true;
}

class PrivacyPanel final : public ChartPanel {
 public:
  PrivacyPanel() : ChartPanel({"privacy", "Privacy", DockPlace::Detail}) {}
  std::string script(const Workspace& workspace) const override {
    const std::optional<PointRef> ref = workspace.selected_point();
    if (!ref) return "";
    return script_for(
        workspace, fmt::format("for _, point in ipairs(runs.points) do\n"
                               "  local privacy = point.id == {} and point.result.privacy or {{}}\n"
                               "  for key, value in pairs(privacy) do print(key, value) end\n"
                               "end",
                               lua_text(workspace.head(*ref).id)));
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    look_at_selected(context);
    if (!detail_) return;
    draw_claim(detail_->privacy, context.style);
    // The export button gets a line of its own.
    ImGui::Dummy(ImVec2(1, ImGui::GetFrameHeight()));
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const std::vector<NamedDetail> points = selected_and_baseline(context, false, chart);
    if (!points.empty()) make_privacy_chart(points[0], chart);
  }

 private:
  // Recomputed once per detail, not once per frame.
  void look_at_selected(const PanelContext& context) {
    std::shared_ptr<const PointDetail> detail;
    if (const auto ref = context.workspace.selected_point()) detail = context.detail(*ref).value;
    if (detail == detail_) return;
    detail_ = std::move(detail);
    if (detail_) verdict_ = check_claim(detail_->privacy, detail_->steps.size());
  }

  void draw_claim(const PrivacyPart& claim, const UiStyle& style) const {
    using Kind = PrivacyVerdict::Kind;
    const PlotColors& colors = style.colors();
    if (verdict_.kind == Kind::NoClaim) {
      show_wrapped(verdict_.text, colors.text);
    } else {
      const ImU32 color = verdict_.kind == Kind::Agrees ? status_color("ok", style.theme)
                          : verdict_.kind == Kind::TooLow || verdict_.kind == Kind::Unfounded
                              ? status_color("failed", style.theme)
                              : status_color("oom", style.theme);
      show_figure("claimed", fmt::format("epsilon {}", format_tick(claim.epsilon)), "epsilon");
      if (std::isfinite(claim.delta)) {
        ImGui::SameLine();
        show_figure("at", fmt::format("delta {}", format_tick(claim.delta)), "delta");
      }
      if (std::isfinite(verdict_.epsilon)) {
        show_figure("recomputed", fmt::format("epsilon {}", format_number(verdict_.epsilon)),
                    "epsilon");
        ImGui::SameLine();
        show_text(std::isfinite(verdict_.best_order) ? fmt::format("(Renyi accounting, order {})",
                                                                   format_tick(verdict_.best_order))
                                                     : fmt::format("(by {})", verdict_.method),
                  colors.muted_text);
      }
      ImGui::PushFont(style.bold, 0.0f);
      show_wrapped(verdict_.text, color);
      ImGui::PopFont();
    }
    draw_ground(claim, colors.muted_text);
  }

  // What the claim rests on, or would.
  static void draw_ground(const PrivacyPart& claim, ImU32 muted) {
    if (records::is_missing(claim)) return;
    bool first = true;
    const auto add = [&](const char* word, const std::string& text, const char* key) {
      if (text.empty()) return;
      if (!first) ImGui::SameLine(0, 1.2f * ImGui::GetFontSize());
      first = false;
      show_figure(word, text, key, 0.4f * ImGui::GetFontSize());
    };
    const auto number = [](double value) {
      return std::isfinite(value) ? format_tick(value) : std::string();
    };
    add("engine", claim.private_engine ? "private" : "not private", "private_engine");
    add("sampler", clean_text(claim.sampler, 32), "sampler");
    add("q", number(claim.sampling_rate), "sampling_rate");
    add("noise", number(claim.noise_multiplier), "noise_multiplier");
    add("drawn from", noise_source(claim.noise), "noise_source");
    add("bound", number(claim.max_grad_norm), "max_grad_norm");
    add("steps", number(claim.steps), "steps");
    if (!claim.history.empty()) {
      add("phases", number(static_cast<double>(claim.history.size())), "history");
    }
    add("by", clean_text(claim.accountant, 32), "accountant");
    first = true;
    add("examples", number(claim.examples), "examples");
    add("batch", number(claim.expected_batch_size), "expected_batch_size");
    add("target", number(claim.target_epsilon), "target_epsilon");
    add("at least", number(claim.epsilon_lower), "epsilon_lower");
    add("order", number(claim.best_order), "best_order");
    const double left_out = claim.norms_histogram.left_out;
    add("norms left out", left_out > 0 ? number(left_out) : "", "left_out");
    if (!claim.warning.empty()) show_wrapped(clean_text(claim.warning, 512), muted);
    if (!claim.note.empty()) show_wrapped("The claim is " + clean_text(claim.note, 512), muted);
  }

  static void show_figure(const char* word, const std::string& text, const char* key,
                          float gap = -1) {
    ImGui::BeginGroup();
    ImGui::TextDisabled("%s", word);
    ImGui::SameLine(0, gap);
    show_text(text);
    ImGui::EndGroup();
    explain_item(definition_of(key));
  }

  std::shared_ptr<const PointDetail> detail_;
  PrivacyVerdict verdict_;
};

}  // namespace

void make_privacy_chart(const NamedDetail& point, Chart& chart) {
  const bool norms = add_norms(point, chart), clipped = add_clip_fraction(point, chart);
  if (!norms && !clipped) {
    chart.empty_what = "No gradient norms in this result";
    chart.empty_next =
        "A private engine (mode = \"ghost\", \"flash_bookkeeping\", ...) records them with "
        "--profile phases (the default), layers or trace; a result that claims an epsilon keeps "
        "them secret.";
    return;
  }
  chart.spec.title = "Clipping: " + point.name;
  chart.spec.width = chart.spec.panels.size() > 1 ? 1100 : 800;
}

const MakePanel make_privacy_panel = make_panel<PrivacyPanel>;

}  // namespace moonshard::viewer
