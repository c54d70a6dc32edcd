// native.analysis: what runtime/analysis computes, on the tables that ms.load gives.
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/result_rows.h"
#include "runtime/analysis/bootstrap.h"
#include "runtime/analysis/bottleneck.h"
#include "runtime/analysis/claims.h"
#include "runtime/analysis/overhead.h"
#include "runtime/analysis/rows.h"
#include "runtime/analysis/scaling.h"
#include "runtime/privacy/engine_names.h"

namespace moonshard::bindings {
namespace {

namespace an = analysis;
using Numbers = std::vector<double>;

std::optional<double> bound_of(const sol::object& value) {
  const double number = number_of(value);
  return std::isnan(number) ? std::nullopt : std::optional(number);
}

Numbers numbers_of(const sol::object& list, size_t count) {
  Numbers numbers;
  for (size_t i = 1; i <= count; ++i) numbers.push_back(number_of(field(list, i)));
  return numbers;
}

// ---- answers to Lua values --------------------------------------------------------------------

/// NaN is nil to Lua.
Json known(double value) {
  return std::isnan(value) ? Json() : Json(value);
}

Json offset_table(const an::OffsetFit& fit) {
  return {{"offset", fit.offset}, {"slope", fit.slope}, {"power", fit.power}, {"error", fit.error}};
}

Json fit_table(const an::ScalingFit& fit) {
  return {{"count", fit.x.size()},
          {"x", fit.x},
          {"y", fit.y},
          {"exponent", known(fit.exponent)},
          {"standard_error", known(fit.standard_error)},
          {"factor", known(fit.factor)},
          {"last_exponent", known(fit.last_exponent)},
          {"linear", offset_table(fit.linear)},
          {"quadratic", offset_table(fit.quadratic)},
          {"better", fit.better().power == 1 ? "a + b T" : "a + b T^2"},
          {"verdict", an::verdict_text(fit.verdict)}};
}

Json overhead_table(const an::Overhead& overhead) {
  Json table = {{"is_baseline", overhead.is_baseline},
                {"memory_bytes", known(overhead.memory_bytes)},
                {"memory_percent", known(overhead.memory_percent)},
                {"time_ratio", known(overhead.time_ratio)},
                {"time_percent", known(overhead.time_percent())},
                {"throughput_ratio", known(overhead.throughput_ratio)}};
  if (overhead.partner && overhead.partner->run == 0)
    table["partner"] = overhead.partner->point + 1;
  if (!overhead.why_none.empty()) table["why_none"] = overhead.why_none;
  return table;
}

Json claim_table(const an::Claim& claim) {
  return {{"holds", claim.holds ? Json(*claim.holds) : Json()}, {"figures", claim.figures}};
}

// ---- functions --------------------------------------------------------------------------------

std::optional<an::ScalingFit> fit_of(const Arguments& args) {
  const sol::table x = args.table(1, "sizes");
  return an::fit_scaling(numbers_of(x, x.size()), numbers_of(args.table(2, "figures"), x.size()));
}

Json fit(const Arguments& args) {
  const auto found = fit_of(args);
  return found ? fit_table(*found) : Json();
}

Json curve(const Arguments& args) {
  const auto found = fit_of(args);
  if (!found) return nullptr;
  const an::Curve line = an::best_curve(*found);
  return {{"x", line.x}, {"y", line.y}, {"text", an::exponent_text(*found)}};
}

Json growth(const Arguments& args) {
  const std::string axis = args.text(2, "axis");
  Json families = Json::array();
  for (const auto& [family, fits] : an::growth_over(table_of(args.value(1), axis, true), axis)) {
    Json list = Json::array();
    for (const auto& [quantity, found] : fits) {
      list.push_back(
          {{"quantity", quantity->name}, {"unit", quantity->unit}, {"fit", fit_table(found)}});
    }
    families.push_back({{"name", family.name}, {"mode", family.mode}, {"fits", std::move(list)}});
  }
  return families;
}

Json figures(const Arguments& args) {
  const an::Row row = row_of(args.value(1), {}, true);
  Json values = Json::object();
  for (const an::Quantity& quantity : an::quantities())
    values[quantity.name] = known(quantity.read(row.metrics, row.detail.get()));
  return values;
}

Json list_of(const std::vector<an::Overhead>& overheads) {
  Json list = Json::array();
  for (const an::Overhead& each : overheads) list.push_back(overhead_table(each));
  return list;
}

Json overhead(const Arguments& args) {
  const std::string axis = args.text(2, "axis");
  const an::Value value = value_of(args.value(3));
  const an::Table table = table_of(args.value(1), axis, false);
  return list_of(
      an::overheads_on_axis({table}, {axis, canonical_value(axis, value), an::text_of(value)})[0]);
}

Json overhead_against(const Arguments& args) {
  an::Table other;
  other.rows.push_back(row_of(args.value(2), {}, false));
  return list_of(
      an::overheads_against({table_of(args.value(1), "", false), other}, an::Place{1, 0}, "")[0]);
}

Json bottlenecks(const Arguments& args) {
  an::Thresholds limits;
  for (const auto& [name, member] : an::threshold_names()) {
    const double given = number_of(field(args.value(2), name));
    if (!std::isnan(given)) limits.*member = given;
  }
  const an::BottleneckReport report =
      an::find_bottlenecks(table_of(args.value(1), "", true), limits);
  Json findings = Json::array();
  for (const an::Finding& finding : report.findings) {
    Json evidence = Json::array();
    for (const auto& [point, text] : finding.evidence)
      evidence.push_back({{"point", point}, {"text", text}});
    findings.push_back({{"name", finding.name},
                        {"cause", finding.cause},
                        {"advice", finding.advice},
                        {"evidence", std::move(evidence)}});
  }
  return {{"findings", std::move(findings)}, {"notes", report.notes}};
}

Json pairs(const Arguments& args) {
  const std::string axis = args.text(2, "axis");
  Json list = Json::array();
  for (const auto& [of, to, at] : an::pairs_on_axis(table_of(args.value(1), axis, false), axis,
                                                    canonical_value(axis, value_of(args.value(3))),
                                                    canonical_value(axis, value_of(args.value(4)))))
    list.push_back({{"of", of + 1}, {"to", to + 1}, {"at", at}});
  return list;
}

an::Bounds bounds_of(const sol::object& rule) {
  return {bound_of(field(rule, "least")), bound_of(field(rule, "most"))};
}

Json ratio_claim(const Arguments& args) {
  const sol::object rule = args.value(1);
  std::vector<an::PairFigures> figures_of_pairs;
  each_item(args.value(2), [&](const sol::object& pair) {
    figures_of_pairs.push_back(
        {number_of(field(pair, "of")), number_of(field(pair, "to")), string_of(field(pair, "at"))});
  });
  return claim_table(an::judge_ratio(
      {an::text_of(value_of(field(rule, "of"))), an::text_of(value_of(field(rule, "to"))),
       bounds_of(rule), string_of(field(rule, "when")) == "largest"},
      figures_of_pairs));
}

Json bound_claim(const Arguments& args) {
  Numbers found;
  each_item(args.value(2), [&](const sol::object& item) { found.push_back(number_of(item)); });
  const sol::object rule = args.value(1);
  return claim_table(an::judge_bound(found, bounds_of(rule), string_of(field(rule, "unit"))));
}

Json growth_claim(const Arguments& args) {
  const sol::object rule = args.value(1);
  an::GrowthClaim claim{string_of(field(rule, "axis")), string_of(field(rule, "quantity")),
                        privacy::canonical_engine(string_of(field(rule, "mode"))),
                        strings_of(field(rule, "verdicts"))};
  if (claim.axis.empty()) claim.axis = "seq_length";
  an::Table table = table_of(args.value(2), claim.axis, true);
  for (an::Row& row : table.rows) row.mode = privacy::canonical_engine(row.mode);
  return claim_table(an::judge_growth(claim, table));
}

std::vector<an::NamedCost> costs_of(const sol::object& list) {
  std::vector<an::NamedCost> costs;
  each_item(list, [&](const sol::object& item) {
    costs.push_back({string_of(field(item, "name")),
                     {number_of(field(item, "time")), number_of(field(item, "memory"))}});
  });
  return costs;
}

Json efficient(const Arguments& args) {
  std::vector<an::Cost> costs;
  for (const an::NamedCost& each : costs_of(args.value(1))) costs.push_back(each.cost);
  Json list = Json::array();
  for (const bool is_efficient : an::efficient(costs)) list.push_back(is_efficient);
  return list;
}

Numbers numbers_of(const sol::object& list) {
  Numbers numbers;
  each_item(list, [&](const sol::object& item) { numbers.push_back(number_of(item)); });
  return numbers;
}

Json quartiles(const Arguments& args) {
  const Numbers samples = numbers_of(args.value(1));
  return {an::quantile(samples, 0.25), an::quantile(samples, 0.75)};
}

an::Statistic statistic_named(const Arguments& args, int place) {
  return args.text(place, "statistic") == "mean" ? an::Statistic::Mean : an::Statistic::Median;
}

Json interval_table(const std::optional<an::Interval>& found) {
  if (!found) return nullptr;
  return {{"value", found->value}, {"low", found->low}, {"high", found->high}};
}

Json quantity_list() {
  Json list = Json::array();
  for (const an::Quantity& each : an::quantities())
    list.push_back({{"name", each.name}, {"unit", each.unit}});
  return list;
}

Json threshold_table() {
  Json table = Json::object();
  for (const auto& [name, member] : an::threshold_names()) table[name] = an::Thresholds().*member;
  return table;
}

}  // namespace

void bind_analysis(sol::table native) {
  lua_State* L = native.lua_state();
  sol::table table(L, sol::create);
  const auto add = [&](const char* name, const char* signature, const char* text,
                       Json (*function)(const Arguments&)) {
    define(table, "analysis", name, signature, text,
           [function](const Arguments& args) { return Json(function(args)); });
  };
  add("fit", "(x, y) -> table", "Growth of figures with a size; nil below two sizes.", &fit);
  add("curve", "(x, y) -> table", "x and y of the curve that follows them best; text: T^p.",
      &curve);
  add("growth", "(runs, axis) -> list", "Fits of every quantity of every family of points.",
      &growth);
  add("figures", "(point) -> table", "All quantities of a point that can grow, by name.", &figures);
  add("overhead", "(runs, axis, value) -> list", "What each point costs beyond its partner.",
      &overhead);
  add("overhead_against", "(runs, point) -> list", "The same against one point for all.",
      &overhead_against);
  add("bottlenecks", "(runs, thresholds) -> table", "Causes with evidence and advice.",
      &bottlenecks);
  add("pairs", "(runs, axis, of, to) -> list", "Good points that differ in one axis only.", &pairs);
  add("ratio_claim", "(rule, pairs) -> table", "Whether ratios lie within bounds.", &ratio_claim);
  add("bound_claim", "(rule, figures) -> table", "Whether figures lie within bounds.",
      &bound_claim);
  add("growth_claim", "(rule, runs) -> table", "Whether a quantity grows as claimed.",
      &growth_claim);
  add("efficient", "(costs) -> list", "Which of { time, memory } no other one beats.", &efficient);
  add("quartiles", "(samples) -> list", "First and third quartile.", &quartiles);
  add("statistic", "(samples, name) -> number", "Median or mean.", [](const Arguments& args) {
    return Json(an::statistic_of(numbers_of(args.value(1)), statistic_named(args, 2)));
  });
  add("interval", "(samples, statistic) -> { value, low, high } or nil",
      "Bootstrap of the median or mean.", [](const Arguments& args) {
        return interval_table(an::interval_of(numbers_of(args.value(1)), statistic_named(args, 2)));
      });
  add("ratio_interval", "(of, to, statistic) -> { value, low, high } or nil",
      "Bootstrap of a ratio of two.", [](const Arguments& args) {
        return interval_table(an::ratio_interval(
            numbers_of(args.value(1)), numbers_of(args.value(2)), statistic_named(args, 3)));
      });
  add("tradeoff_claim", "(expected, costs) -> table", "Whether it has the smallest product.",
      [](const Arguments& args) {
        return claim_table(an::judge_tradeoff(args.text(1, "name"), costs_of(args.value(2))));
      });
  add("owners_in_order", "(names) -> list", "Owners of memory in the order of a stack.",
      [](const Arguments& args) { return Json(an::owners_in_order(strings_of(args.value(1)))); });
  add("phases_in_order", "(names) -> list", "Phases in the order of a step.",
      [](const Arguments& args) { return Json(an::phases_in_order(strings_of(args.value(1)))); });
  add("canonical_mode", "(name) -> name", "The engine that a name or alias stands for.",
      [](const Arguments& args) { return Json(privacy::canonical_engine(args.text(1, "name"))); });
  table["thresholds"] = to_lua(L, threshold_table());
  table["bootstrap"] = to_lua(L, {{"level", an::kIntervalLevel},
                                  {"resamples", an::kResamples},
                                  {"least_samples", an::kLeastSamples}});
  table["quantities"] = to_lua(L, quantity_list());
  native["analysis"] = table;
}

}  // namespace moonshard::bindings
