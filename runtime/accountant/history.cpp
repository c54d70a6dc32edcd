#include "runtime/accountant/history.h"

#include "runtime/base/check.h"

namespace moonshard::accountant {
namespace {

double number_of(const Json& entry, const char* key, const std::string& where, size_t index) {
  const auto found = entry.find(key);
  MS_CHECK(found != entry.end() && found->is_number(),
           "{}: phase {}: expected a number '{}', got {}; each phase is {{ q, sigma, steps }}",
           where, index + 1, key, found == entry.end() ? "nothing" : found->type_name());
  return found->get<double>();
}

}  // namespace

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

double History::num_steps() const {
  double steps = 0;
  for (const GaussianPhase& phase : phases_) steps += phase.steps;
  return steps;
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
