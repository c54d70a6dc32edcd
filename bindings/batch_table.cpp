#include "bindings/batch_table.h"

#include <ATen/ATen.h>

#include "bindings/convert.h"
#include "bindings/tensor_handle.h"

namespace moonshard::bindings {
namespace {

struct Field {
  const char* name;
  at::Tensor Batch::*tensor;
  std::vector<std::string> needed_by;  ///< tasks
};

const std::vector<Field>& fields() {
  static const std::vector<Field> list = {{"input_ids", &Batch::input_ids, {"classify", "lm"}},
                                          {"attention_mask", &Batch::attention_mask, {}},
                                          {"labels", &Batch::labels, {"classify", "lm", "denoise"}},
                                          {"inputs", &Batch::inputs, {"regress", "denoise"}},
                                          {"targets", &Batch::targets, {"regress", "denoise"}},
                                          {"timesteps", &Batch::timesteps, {"denoise"}}};
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

Batch read_batch(const Arguments& args, int n, const std::string& task) {
  const sol::table table = args.table(n, "batch");
  Batch batch;
  const Field* first = nullptr;
  for (const Field& field : fields()) {
    const sol::object value = table.raw_get<sol::object>(field.name);
    at::Tensor& tensor = batch.*field.tensor;
    if (value.is<TensorHandle>()) tensor = value.as<TensorHandle&>().get(args.function_name());
    const bool needed =
        std::find(field.needed_by.begin(), field.needed_by.end(), task) != field.needed_by.end();
    MS_CHECK(!needed || tensor.defined(),
             "{}: batch field '{}': expected a Tensor for task {}, got {}; take batches from "
             "data:next()",
             args.function_name(), field.name, task,
             value.get_type() == sol::type::lua_nil ? "nothing" : "something else");
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &field;
    const at::Tensor& leader = batch.*(first->tensor);
    MS_CHECK(tensor.dim() >= 1 && tensor.size(0) == leader.size(0),
             "{}: batch field '{}': expected {} samples as in '{}', got shape {}",
             args.function_name(), field.name, leader.size(0), first->name,
             c10::str(tensor.sizes()));
  }
  if (batch.input_ids.defined()) {
    MS_CHECK(batch.input_ids.dim() == 2,
             "{}: batch field 'input_ids': expected [samples, tokens], got {}",
             args.function_name(), c10::str(batch.input_ids.sizes()));
    batch.input_ids = batch.input_ids.to(at::kLong);
    batch.attention_mask = batch.attention_mask.defined()
                               ? batch.attention_mask.to(at::kBool)
                               : at::ones_like(batch.input_ids, at::kBool);
  }
  if (batch.labels.defined()) batch.labels = batch.labels.to(at::kLong);
  if (batch.timesteps.defined()) batch.timesteps = batch.timesteps.to(at::kLong);
  return batch;
}

}  // namespace moonshard::bindings
