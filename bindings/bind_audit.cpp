// ms.audit: canaries against the real training step.
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "runtime/audit/audit.h"

namespace moonshard::bindings {
namespace {

const OptionSchema& schema() {
  static const OptionSchema s = audit::audit_schema<audit::AuditOptions>("ms.audit");
  return s;
}

sol::object run_audit(const Arguments& args) {
  audit::AuditOptions options;
  schema().assign_all(&options, args.options(1));
  return to_lua(args.state(), audit::to_json(audit::audit(options), options));
}

}  // namespace

void bind_audit(sol::table ms) {
  define(
      ms, "ms", "audit",
      "{ engine, clipping, seeds, canaries, trials, sigma, delta, … } -> { audits, exceeded, … }",
      "Puts canaries into real training steps by coin flips, guesses the coins from the weights, "
      "and gives lower bounds on epsilon beside the claim. A bound above it is a broken promise.",
      run_audit);
}

}  // namespace moonshard::bindings
