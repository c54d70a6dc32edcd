// ms.privacy: what noised steps cost, and what a budget allows.
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "runtime/accountant/calibrate.h"
#include "runtime/accountant/epsilon.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"

namespace moonshard::bindings {
namespace {

using accountant::Epsilon;
using accountant::GaussianPhase;

constexpr const char* kDefaultMethod = "prv";
constexpr size_t kMostOrders = 10'000;

void expect_names(const Arguments& args, const Json& options,
                  const std::vector<std::string>& known) {
  OptionSchema schema(args.function_name());
  schema.also_known(known);
  MS_CHECK(options.is_object(), "{}: expected a table of options, got a list",
           args.function_name());
  for (const auto& [name, value] : options.items()) {
    if (!schema.is_also_known(name)) schema.fail_unknown(name);
  }
}

double number(const Arguments& args, const Json& options, const char* name) {
  const auto found = options.find(name);
  MS_CHECK(found != options.end() && found->is_number(),
           "{}: option '{}': expected a number, got {}", args.function_name(), name,
           found == options.end() ? "nothing" : found->type_name());
  return found->get<double>();
}

std::string method_of(const Arguments& args, const Json& options) {
  const auto found = options.find("method");
  if (found == options.end()) return kDefaultMethod;
  MS_CHECK(found->is_string(), "{}: option 'method': expected a text, got {}", args.function_name(),
           found->type_name());
  const std::string method = found->get<std::string>();
  accountant::check_method(args.function_name(), method);
  return method;
}

std::vector<double> orders_of(const Arguments& args, const Json& options) {
  std::vector<double> orders;
  const auto found = options.find("orders");
  if (found == options.end()) return orders;
  MS_CHECK(found->is_array() && !found->empty() && found->size() <= kMostOrders,
           "{}: option 'orders': expected a list of 1 to {} numbers above 1, got {} of size {}",
           args.function_name(), kMostOrders, found->type_name(), found->size());
  for (const Json& order : *found) {
    MS_CHECK(order.is_number(), "{}: option 'orders': expected numbers, got {}",
             args.function_name(), order.type_name());
    orders.push_back(order.get<double>());
  }
  return orders;
}

std::vector<GaussianPhase> phases_of(const Arguments& args, const Json& options) {
  const auto found = options.find("phases");
  if (found == options.end()) {
    return {{number(args, options, "q"), number(args, options, "sigma"),
             number(args, options, "steps")}};
  }
  for (const char* name : {"q", "sigma", "steps"}) {
    MS_CHECK(!options.contains(name), "{}: expected either phases or {}, got both",
             args.function_name(), name);
  }
  // An empty Lua table is an empty list here.
  const Json list = found->is_object() && found->empty() ? Json::array() : *found;
  return accountant::History::from_json(list,
                                        fmt::format("{}: option 'phases'", args.function_name()))
      .phases();
}

// Without noise there is no epsilon, and an infinite one looks like an answer.
void refuse_no_noise(const Arguments& args, const std::vector<GaussianPhase>& phases) {
  for (const GaussianPhase& phase : phases) {
    MS_CHECK(phase.sigma > 0 || phase.steps == 0,
             "{}: option 'sigma': expected a noise multiplier above 0, got {}; without noise no "
             "epsilon holds",
             args.function_name(), phase.sigma);
  }
}

Json epsilon_row(const Epsilon& found, const std::string& method) {
  Json result{{"method", method}, {"epsilon", found.epsilon}, {"guarantee", found.guarantee}};
  if (!std::isnan(found.best_order)) result["best_order"] = found.best_order;
  if (!std::isnan(found.lower)) result["lower"] = found.lower;
  if (!std::isnan(found.upper)) result["upper"] = found.upper;
  if (!found.note.empty()) result["note"] = found.note;
  return result;
}

sol::object compute_epsilon(const Arguments& args) {
  const Json options = args.options(1);
  expect_names(args, options, {"method", "q", "sigma", "steps", "delta", "orders", "phases"});
  const std::string method = method_of(args, options);
  const std::vector<GaussianPhase> phases = phases_of(args, options);
  refuse_no_noise(args, phases);
  const Epsilon found = accountant::epsilon_of(method, phases, number(args, options, "delta"),
                                               orders_of(args, options));
  return to_lua(args.state(), epsilon_row(found, method));
}

sol::object calibrate(const Arguments& args) {
  const Json options = args.options(1);
  expect_names(args, options,
               {"method", "q", "sigma", "steps", "delta", "target_epsilon", "epsilon_tolerance"});
  const std::string method = method_of(args, options);
  std::string wanted;
  for (const char* name : {"q", "sigma", "steps"}) {
    if (options.contains(name)) continue;
    MS_CHECK(wanted.empty(), "{}: expected two of q, sigma and steps, got neither {} nor {}",
             args.function_name(), wanted, name);
    wanted = name;
  }
  MS_CHECK(!wanted.empty(),
           "{}: expected two of q, sigma and steps, got all of them; leave out what is looked for",
           args.function_name());
  const double delta = number(args, options, "delta");
  const double target = number(args, options, "target_epsilon");
  accountant::CalibrateOptions settings;
  if (options.contains("epsilon_tolerance")) {
    settings.epsilon_tolerance = number(args, options, "epsilon_tolerance");
  }
  GaussianPhase phase;
  if (wanted != "q") phase.q = number(args, options, "q");
  if (wanted != "sigma") phase.sigma = number(args, options, "sigma");
  if (wanted != "steps") phase.steps = number(args, options, "steps");
  if (wanted != "sigma") refuse_no_noise(args, {{phase.q, phase.sigma, 1}});
  if (wanted == "sigma") {
    phase.sigma =
        accountant::calibrate_sigma(method, phase.q, phase.steps, delta, target, settings);
  } else if (wanted == "steps") {
    phase.steps = accountant::calibrate_steps(method, phase.q, phase.sigma, delta, target);
  } else {
    phase.q = accountant::calibrate_q(method, phase.sigma, phase.steps, delta, target, settings);
  }
  Json result = epsilon_row(accountant::epsilon_of(method, {phase}, delta), method);
  result["found"] = wanted;
  result["q"] = phase.q;
  result["sigma"] = phase.sigma;
  result["steps"] = phase.steps;
  result["delta"] = delta;
  result["target_epsilon"] = target;
  return to_lua(args.state(), result);
}

}  // namespace

void bind_budget(sol::table ms) {
  sol::table privacy(ms.lua_state(), sol::create);
  ms["privacy"] = privacy;
  document(privacy, "ms.privacy", "ms.privacy.epsilon, ms.privacy.calibrate",
           "Budgets of differential privacy: what noised steps cost, and what a budget allows.");
  define(privacy, "ms.privacy", "epsilon",
         "{ method, q, sigma, steps, delta, orders } -> { epsilon, best_order | lower, upper }",
         "Epsilon of Poisson-sampled steps: q is batch size over samples, sigma the noise "
         "multiplier. method is rdp, prv (the default), pld, gaussian (q = 1 alone) or gdp, which "
         "is an approximation and no guarantee. phases = { { q, sigma, steps }, ... } instead of "
         "the three is a history; orders are of rdp.",
         compute_epsilon);
  define(privacy, "ms.privacy", "calibrate",
         "{ method, q, sigma, steps, delta, target_epsilon } -> { q, sigma, steps, epsilon, … }",
         "Finds the one of q, sigma and steps that is left out: the least noise, or the most steps "
         "or the largest rate, whose epsilon is at most the target.",
         calibrate);
}

}  // namespace moonshard::bindings
