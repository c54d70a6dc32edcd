// Engines and rules for Lua: listing, registration from scripts, verification and audits.
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/lua_callback.h"
#include "runtime/audit/audit.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "runtime/privacy/engines/engines.h"
#include "runtime/verify/verify.h"

namespace moonshard::bindings {
namespace {

using models::ParamLayer;

sol::object list_engines(const Arguments& args) {
  Json list = Json::array();
  const std::vector<verify::Support> support = verify::support_table();
  for (const privacy::EngineDescription& engine : privacy::engine_descriptions()) {
    Json entry{{"name", engine.name},
               {"private", engine.is_private},
               {"aliases", engine.aliases},
               {"doc", engine.doc}};
    for (const verify::Support& row : support) {
      if (row.engine != engine.name) continue;
      entry["layers"] = row.layers;
      entry["models"] = row.models;
      entry["options"] = row.options;
      entry["dtypes"] = row.dtypes;
    }
    list.push_back(std::move(entry));
  }
  return to_lua(args.state(), list);
}

// The function of that name in a table, or null when it has none.
std::shared_ptr<LuaCallback> callback(const Arguments& args, const sol::table& table,
                                      const char* name, const std::string& title) {
  const sol::object value = table.raw_get<sol::object>(name);
  if (!value.valid() || value.get_type() == sol::type::lua_nil) return nullptr;
  MS_CHECK(value.get_type() == sol::type::function,
           "{}: option '{}': expected a function, got a {}", args.function_name(), name,
           sol::type_name(args.state(), value.get_type()));
  sol::stack::push(args.state(), value);
  return std::make_shared<LuaCallback>(args.state(), title);
}

std::string text_or(const Arguments& args, const sol::table& table, const char* name,
                    const char* fallback) {
  const sol::object value = table.raw_get<sol::object>(name);
  if (!value.valid() || value.get_type() == sol::type::lua_nil) return fallback;
  MS_CHECK(value.get_type() == sol::type::string, "{}: option '{}': expected a text, got a {}",
           args.function_name(), name, sol::type_name(args.state(), value.get_type()));
  return value.as<std::string>();
}

void expect_keys(const Arguments& args, const sol::table& table,
                 const std::vector<std::string>& known) {
  OptionSchema schema(args.function_name());
  schema.also_known(known);
  for (const auto& [key, value] : table) {
    const std::string name = key.is<std::string>() ? key.as<std::string>() : "(a number)";
    if (!schema.is_also_known(name)) schema.fail_unknown(name);
  }
}

// Processes that a sweep starts know such parts only by running the script again.
void note_own_part(lua_State* L) {
  lua_pushboolean(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, kOwnPartsNote);
}

void add_engine(const Arguments& args) {
  note_own_part(args.state());
  const std::string name = args.text(1, "name");
  if (args.value(2).get_type() == sol::type::boolean && !args.boolean(2, "engine")) {
    privacy::unregister_engine(name);
    return;
  }
  const sol::table table = args.table(2, "{ norms, keep, doc }, or false to remove the engine");
  expect_keys(args, table, {"norms", "keep", "doc"});
  const auto norms = callback(args, table, "norms", "engine " + name);
  MS_CHECK(
      norms != nullptr,
      "{}: option 'norms': expected a function (layer, a, g) -> squared norms [B], got nothing",
      args.function_name());
  const std::string keep = text_or(args, table, "keep", "inputs");
  MS_CHECK(keep == "inputs" || keep == "nothing",
           "{}: option 'keep': expected inputs or nothing (a second backward pass), got '{}'",
           args.function_name(), keep);
  const privacy::Keep plan = keep == "inputs" ? privacy::Keep::Inputs : privacy::Keep::Nothing;
  const privacy::NormFunction function = [norms](const ParamLayer& layer, const at::Tensor& a,
                                                 const at::Tensor& g) {
    return (*norms)(layer, {a, g});
  };
  privacy::register_engine(
      {.name = name, .doc = text_or(args, table, "doc", "registered by a script")},
      [name, function, plan](const privacy::ClipOptions&,
                             std::shared_ptr<privacy::Clipping> clipping) {
        return privacy::make_custom_engine(name, function, plan, std::move(clipping));
      });
}

class LuaRule : public privacy::LayerRule {
 public:
  std::shared_ptr<LuaCallback> gradients, norms;

  at::Tensor per_sample(const ParamLayer& layer, const at::Tensor& a,
                        const at::Tensor& g) const override {
    return (*gradients)(layer, {a, g});
  }
  at::Tensor squares(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                     const privacy::NormSettings& settings) const override {
    if (norms == nullptr) return LayerRule::squares(layer, a, g, settings);
    return (*norms)(layer, {a, g});
  }
};

void add_rule(const Arguments& args) {
  note_own_part(args.state());
  const std::string kind = args.text(1, "kind");
  if (args.value(2).get_type() == sol::type::boolean && !args.boolean(2, "rule")) {
    privacy::register_rule(kind, nullptr);
    return;
  }
  const sol::table table = args.table(2, "{ per_sample, squares }, or false to remove the rule");
  expect_keys(args, table, {"per_sample", "squares"});
  auto rule = std::make_shared<LuaRule>();
  rule->gradients = callback(args, table, "per_sample", "rule of kind " + kind);
  rule->norms = callback(args, table, "squares", "rule of kind " + kind);
  MS_CHECK(rule->gradients != nullptr,
           "{}: option 'per_sample': expected a function (layer, a, g) -> gradients [B, shape of "
           "the weight], got nothing",
           args.function_name());
  privacy::register_rule(kind, rule);
}

const OptionSchema& verify_schema() {
  static const OptionSchema schema("ms.verify", [](OptionSchema& s) {
    using T = verify::VerifyOptions;
    s.text<T>("model", &T::model, "one preset instead of every tiny one");
    s.text<T>("engine", &T::engine, "one engine instead of all");
    s.text<T>("options", &T::options, "one way to train, e.g. accumulation");
    s.text<T>("dtype", &T::dtype, "float64, float32 or bfloat16");
    s.choice<T>("device", &T::device, {"auto", "cpu", "cuda"}, "where it runs");
    s.integer<T>("seed", &T::seed, 0, 9007199254740992.0, "of weights and data");
  });
  return schema;
}

sol::object run_verify(const Arguments& args) {
  verify::VerifyOptions options;
  verify_schema().assign_all(&options, args.options(1));
  return to_lua(args.state(), verify::to_json(verify::verify(options)));
}

const OptionSchema& audit_schema() {
  static const OptionSchema schema = audit::audit_schema<audit::AuditOptions>("ms.audit");
  return schema;
}

sol::object run_audit(const Arguments& args) {
  audit::AuditOptions options;
  audit_schema().assign_all(&options, args.options(1));
  return to_lua(args.state(), audit::to_json(audit::audit(options), options));
}

}  // namespace

void bind_privacy(sol::table ms) {
  define(ms, "ms", "engines", "() -> list",
         "The clipping engines, each with the layers, models, options and dtypes that "
         "moonshard verify proves it on.",
         list_engines);
  define(ms, "ms", "register_engine", "(name, { norms, keep, doc } or false)",
         "Adds a clipping engine: norms(layer, a, g) gives each sample's squared norm [B] of a "
         "layer; keep = \"inputs\" sums from what was kept, \"nothing\" by a second backward pass. "
         "false takes it away.",
         add_engine);
  define(ms, "ms", "register_rule", "(kind, { per_sample, squares } or false)",
         "Sets the gradient rule of a kind of layers: per_sample(layer, a, g) gives each sample's "
         "gradient [B, shape of the weight], squares(layer, a, g) its squared norm [B]. false "
         "removes the rule.",
         add_rule);
  define(ms, "ms", "rules", "() -> list", "The kinds of layers that have a gradient rule.",
         [](const Arguments&) { return Json(privacy::ruled_kinds()); });
  document_options<verify::VerifyOptions>("ms.verify", verify_schema());
  define(ms, "ms", "verify", "{ model, engine, options, dtype, device } -> { cells, failed }",
         "Compares engines with batch-of-one gradients by plain autograd, cell by cell.",
         run_verify);
}

void bind_audit(sol::table ms) {
  document_options<audit::AuditOptions>("ms.audit", audit_schema());
  define(
      ms, "ms", "audit",
      "{ engine, clipping, seeds, canaries, trials, sigma, delta, … } -> { audits, exceeded, … }",
      "Puts canaries into real training steps by coin flips, guesses the coins from the weights, "
      "and gives lower bounds on epsilon beside the claim. A bound above it is a broken promise.",
      run_audit);
}

}  // namespace moonshard::bindings
