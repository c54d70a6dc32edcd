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

}  // namespace moonshard::accountant
