#include "bindings/batch_table.h"

#include <ATen/ATen.h>

#include "bindings/convert.h"
#include "bindings/tensor_handle.h"
#include "runtime/base/options.h"
#include "runtime/core/device.h"
#include "runtime/models/registry.h"

namespace moonshard::bindings {
namespace {

struct Field {
  const char* name;
  at::Tensor Batch::*tensor;
  bool whole;  ///< ids and labels
};

const std::vector<Field>& fields() {
  static const std::vector<Field> list = {
      {"input_ids", &Batch::input_ids, true}, {"attention_mask", &Batch::attention_mask, true},
      {"labels", &Batch::labels, true},       {"inputs", &Batch::inputs, false},
      {"targets", &Batch::targets, false},    {"timesteps", &Batch::timesteps, true}};
  return list;
}

}  // namespace

sol::table push_batch(lua_State* L, const Batch& batch) {
  sol::table table(L, sol::create);
  for (const Field& field : fields()) {
    const at::Tensor& tensor = batch.*field.tensor;
    if (tensor.defined()) table[field.name] = push_tensor(L, tensor);
  }
  return table;
}

Batch read_batch(const Arguments& args, int n, const models::Model& model) {
  const sol::table table = args.table(n, "batch");
  const std::string& task = model.options().task;
  OptionSchema names(args.function_name());
  std::vector<std::string> known;
  for (const Field& field : fields()) known.emplace_back(field.name);
  names.also_known(known);
  for (const auto& [key, value] : table) {
    const std::string name = key.is<std::string>() ? key.as<std::string>() : "(a number)";
    if (!names.is_also_known(name)) names.fail_unknown(name);
  }
  Batch batch;
  const models::Task* described = models::find_task(task);
  const std::vector<std::string> required =
      described == nullptr ? std::vector<std::string>{} : described->batch_fields;
  for (const Field& field : fields()) {
    const sol::object value = table.raw_get<sol::object>(field.name);
    const bool given = value.valid() && value.get_type() != sol::type::lua_nil;
    const bool needed = std::find(required.begin(), required.end(), field.name) != required.end();
    MS_CHECK(value.is<TensorHandle>() || (!given && !needed),
             "{}: batch field '{}': expected a Tensor for task {}, got {}; take batches from "
             "data:next()",
             args.function_name(), field.name, task, given ? "something else" : "nothing");
    if (!given) continue;
    const at::Tensor& tensor = value.as<TensorHandle&>().get(args.function_name());
    MS_CHECK(!field.whole || !tensor.is_floating_point() || at::equal(tensor, tensor.round()),
             "{}: batch field '{}': expected whole numbers, got fractions", args.function_name(),
             field.name);
    MS_CHECK(tensor.dim() >= 1,
             "{}: batch field '{}': expected [samples, ...], got a single number",
             args.function_name(), field.name);
    batch.*field.tensor = field.whole ? tensor.to(at::kLong) : tensor;
  }
  if (batch.input_ids.defined() && !batch.attention_mask.defined())
    batch.attention_mask = at::ones_like(batch.input_ids);
  if (batch.attention_mask.defined()) {
    const at::Tensor& mask = batch.attention_mask;
    MS_CHECK(mask.eq(0).logical_or(mask.eq(1)).all().item<bool>(),
             "{}: batch field 'attention_mask': expected 0 and 1, got other numbers",
             args.function_name());
    batch.attention_mask = mask.to(at::kBool);
  }
  model.check(batch);
  const c10::Device device = resolve_device(model.options().device);
  for (const Field& field : fields()) {
    at::Tensor& tensor = batch.*field.tensor;
    if (tensor.defined()) tensor = tensor.to(device);
  }
  return batch;
}

}  // namespace moonshard::bindings
