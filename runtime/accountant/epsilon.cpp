#include "runtime/accountant/epsilon.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "runtime/accountant/gaussian.h"
#include "runtime/accountant/privacy_loss.h"
#include "runtime/accountant/rdp.h"
#include "runtime/base/check.h"

namespace moonshard::accountant {
namespace {

Epsilon of_bracket(Bracket bracket) {
  Epsilon result;
  result.epsilon = bracket.upper;
  result.lower = bracket.lower;
  result.upper = bracket.upper;
  result.note = std::move(bracket.note);
  return result;
}

double number_of(const Json& entry, const char* key, const std::string& where, size_t index) {
  const auto found = entry.find(key);
  MS_CHECK(found != entry.end() && found->is_number(),
           "{}: phase {}: expected a number '{}', got {}; each phase is {{ q, sigma, steps }}",
           where, index + 1, key, found == entry.end() ? "nothing" : found->type_name());
  return found->get<double>();
}

}  // namespace

const std::vector<std::string>& methods() {
  static const std::vector<std::string> list{"rdp", "prv", "pld", "gdp", "gaussian"};
  return list;
}

void check_method(const char* where, const std::string& method) {
  MS_CHECK(std::find(methods().begin(), methods().end(), method) != methods().end(),
           "{}: expected a method of {}, got '{}'", where, fmt::join(methods(), ", "),
           method.substr(0, 64));
}

Epsilon epsilon_of(const std::string& method, const std::vector<GaussianPhase>& phases,
                   double delta, const std::vector<double>& orders) {
  check_method("accountant", method);
  check_phases("accountant", phases, delta);
  MS_CHECK(orders.empty() || method == "rdp",
           "accountant: expected orders beside the method rdp alone, got {} of them beside {}",
           orders.size(), method);
  if (method == "prv") return of_bracket(prv_bracket(phases, delta));
  if (method == "pld") return of_bracket(pld_bracket(phases, delta));
  Epsilon result;
  if (method == "rdp") {
    const RdpEpsilon found = rdp_epsilon(phases, delta, orders.empty() ? default_orders() : orders);
    result.epsilon = found.epsilon;
    result.best_order = found.best_order;
  } else if (method == "gaussian") {
    result.epsilon = gaussian_epsilon(exact_mu(phases), delta);
  } else {
    result.epsilon = gaussian_epsilon(central_limit_mu(phases), delta);
    result.guarantee = false;
    result.note = kApproximationNote;
  }
  return result;
}

void History::add(const GaussianPhase& phase) {
  check_phases("accountant.history", {phase}, 0.5);
  if (phase.steps == 0) return;
  if (!phases_.empty() && phases_.back().q == phase.q && phases_.back().sigma == phase.sigma) {
    phases_.back().steps += phase.steps;
    return;
  }
  MS_CHECK(phases_.size() < kMostPhases,
           "accountant.history: expected at most {} phases, got one more; change the noise or the "
           "sampling rate less often",
           kMostPhases);
  phases_.push_back(phase);
}

void History::add_to_kind(const GaussianPhase& phase) {
  for (GaussianPhase& earlier : phases_) {
    if (earlier.q != phase.q || earlier.sigma != phase.sigma) continue;
    check_phases("accountant.history", {phase}, 0.5);
    earlier.steps += phase.steps;
    return;
  }
  add(phase);
}

double History::num_steps() const {
  double steps = 0;
  for (const GaussianPhase& phase : phases_) steps += phase.steps;
  return steps;
}

History History::beyond(const History& other) const {
  const auto steps_of_kind = [](const History& history, const GaussianPhase& kind) {
    double steps = 0;
    for (const GaussianPhase& phase : history.phases_)
      if (phase.q == kind.q && phase.sigma == kind.sigma) steps += phase.steps;
    return steps;
  };
  History rest;
  for (const GaussianPhase& phase : phases_) {
    const double missing = steps_of_kind(*this, phase) - steps_of_kind(other, phase);
    const double added = steps_of_kind(rest, phase);
    if (missing > added) rest.add({phase.q, phase.sigma, missing - added});
  }
  return rest;
}

Epsilon History::epsilon(const std::string& method, double delta) const {
  return epsilon_of(method, phases_, delta);
}

Json History::to_json() const {
  Json list = Json::array();
  for (const GaussianPhase& phase : phases_) {
    list.push_back({{"q", phase.q}, {"sigma", phase.sigma}, {"steps", phase.steps}});
  }
  return list;
}

History History::from_json(const Json& list, const std::string& where) {
  MS_CHECK(list.is_array(), "{}: expected a list of phases {{ q, sigma, steps }}, got {}", where,
           list.type_name());
  MS_CHECK(list.size() <= kMostPhases, "{}: expected at most {} phases, got {}", where, kMostPhases,
           list.size());
  History history;
  std::vector<GaussianPhase> phases;
  for (size_t i = 0; i < list.size(); ++i) {
    MS_CHECK(list[i].is_object(), "{}: phase {}: expected {{ q, sigma, steps }}, got {}", where,
             i + 1, list[i].type_name());
    for (const auto& [key, value] : list[i].items()) {
      MS_CHECK(key == "q" || key == "sigma" || key == "steps",
               "{}: phase {}: expected q, sigma and steps alone, got an unknown key; phases hold "
               "nothing else",
               where, i + 1);
    }
    phases.push_back({number_of(list[i], "q", where, i), number_of(list[i], "sigma", where, i),
                      number_of(list[i], "steps", where, i)});
  }
  check_phases(where.c_str(), phases, 0.5);
  for (const GaussianPhase& phase : phases) history.add(phase);
  return history;
}

}  // namespace moonshard::accountant
