// Tensors for Lua: makers (ms.zeros …), arithmetic that experiments need, and a useful tostring.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/tensor_handle.h"
#include "bindings/tensor_values.h"
#include "bindings/usertype.h"
#include "runtime/base/check.h"
#include "runtime/core/device.h"

namespace moonshard::bindings {
namespace {

// ---- arithmetic -------------------------------------------------------------------------------

// An operand may be a tensor or a number: 2 * t, t + u.
at::Tensor operand(const Arguments& args, int n, const at::Tensor* like) {
  if (args.is<TensorHandle>(n)) {
    return args.object<TensorHandle>(n, "Tensor").get(args.function_name());
  }
  // A whole number beside integers stays one: as a float it would take their digits.
  const bool whole_beside_whole =
      like != nullptr && !like->is_floating_point() && args.is_integer(n);
  if (whole_beside_whole) return at::scalar_tensor(args.integer(n, "number"), at::kLong);
  const double number = args.number(n, "a Tensor or a number");
  const bool is_float = like != nullptr && like->is_floating_point();
  return at::scalar_tensor(number, is_float ? like->scalar_type() : at::kFloat);
}

template <class F>
auto binary(F operation) {
  return [operation](const Arguments& args) {
    const at::NoGradGuard no_grad;
    const at::Tensor* like = nullptr;
    for (int n = 1; n <= 2; ++n) {
      if (args.is<TensorHandle>(n))
        like = &args.object<TensorHandle>(n, "Tensor").get(args.function_name());
    }
    const at::Tensor a = operand(args, 1, like), b = operand(args, 2, like);
    return push_tensor(args.state(), operation(a, b));
  };
}

template <class F>
auto unary(F operation) {
  return [operation](const Arguments& args) {
    const at::NoGradGuard no_grad;
    return push_tensor(args.state(),
                       operation(args.self<TensorHandle>("Tensor").get(args.function_name())));
  };
}

// Lua counts dimensions from 1, negative ones from the end.
int64_t read_dimension(const Arguments& args, int n, const at::Tensor& tensor) {
  const int64_t dimension = args.integer(n, "dimension, from 1");
  MS_CHECK(dimension != 0 && std::abs(dimension) <= tensor.dim(),
           "{}: expected a dimension from 1 to {}, got {}", args.function_name(), tensor.dim(),
           dimension);
  return dimension > 0 ? dimension - 1 : dimension;
}

// sum, mean, …: over all elements, or along one dimension.
template <class All, class Along>
auto reduction(All all, Along along) {
  return [all, along](const Arguments& args) {
    const at::NoGradGuard no_grad;
    const at::Tensor& tensor = args.self<TensorHandle>("Tensor").get(args.function_name());
    if (args.missing(2)) return push_tensor(args.state(), all(tensor));
    return push_tensor(args.state(), along(tensor, read_dimension(args, 2, tensor)));
  };
}

sol::object read_item(const Arguments& args) {
  const at::Tensor& tensor = args.self<TensorHandle>("Tensor").get(args.function_name());
  MS_CHECK(tensor.numel() == 1, "{}: expected a tensor of one element, got {}",
           args.function_name(), tensor.numel());
  return nested_table(args.state(), tensor.reshape({}));
}

sol::object select(const Arguments& args) {
  const at::Tensor& tensor = args.self<TensorHandle>("Tensor").get(args.function_name());
  const int64_t dimension = read_dimension(args, 2, tensor);
  const int64_t position = args.integer(3, "position, from 1");
  MS_CHECK(position >= 1 && position <= tensor.size(dimension),
           "{}: expected a position from 1 to {}, got {}", args.function_name(),
           tensor.size(dimension), position);
  return push_tensor(args.state(), tensor.select(dimension, position - 1));
}

sol::object convert_to(const Arguments& args) {
  const at::Tensor& tensor = args.self<TensorHandle>("Tensor").get(args.function_name());
  const std::string name = args.text(2, "dtype or device");
  if (name == "auto" || name == "cpu" || name.rfind("cuda", 0) == 0)
    return push_tensor(args.state(), tensor.to(resolve_device(name)));
  return push_tensor(args.state(), tensor.to(dtype_from_name(name)));
}

// Fields: t.shape, t.dtype, t.device, t.bytes, t.dims. Any other name is an error.
sol::object read_field(const Arguments& args) {
  lua_State* L = args.state();
  const TensorHandle& handle = args.self<TensorHandle>("Tensor");
  const std::string name =
      args.value(2).get_type() == sol::type::string ? args.text(2, "field") : "";
  if (name == "freed") return sol::make_object(L, handle.is_freed());
  const at::Tensor& tensor = handle.get("Tensor");
  if (name == "shape") return to_lua(L, Json(tensor.sizes().vec()));
  if (name == "dtype") return sol::make_object(L, dtype_name(tensor.scalar_type()));
  if (name == "device") return sol::make_object(L, tensor.device().str());
  if (name == "bytes") return to_lua(L, Json(tensor.nbytes()));
  if (name == "dims") return to_lua(L, Json(tensor.dim()));
  if (name == "numel") return to_lua(L, Json(tensor.numel()));
  throw UsageError(
      fmt::format("Tensor: expected a field (shape, dtype, device, bytes, dims, numel, freed) or a "
                  "method, got {}; see help(ms.tensor)",
                  name.empty() ? describe_value(L, 2) : "'" + name + "'"));
}

void bind_makers(sol::table ms) {
  define(ms, "ms", "tensor", "(numbers, { dtype, device }) -> Tensor",
         "A tensor from a number or nested tables. Methods: add sub mul div matmul neg abs sqrt "
         "exp log sum mean max min norm item tolist reshape transpose select to clone free.",
         tensor_from_table);
  define(ms, "ms", "zeros", "(sizes, { dtype, device }) -> Tensor", "A tensor of zeros.",
         [](const Arguments& args) {
           return push_tensor(args.state(),
                              at::zeros(read_shape(args, 1), read_tensor_options(args, 2)));
         });
  define(ms, "ms", "ones", "(sizes, { dtype, device }) -> Tensor", "A tensor of ones.",
         [](const Arguments& args) {
           return push_tensor(args.state(),
                              at::ones(read_shape(args, 1), read_tensor_options(args, 2)));
         });
  define(ms, "ms", "arange", "(n, { dtype, device }) -> Tensor", "The numbers 0 to n - 1.",
         [](const Arguments& args) {
           const int64_t count = args.integer(1, "count");
           MS_CHECK(count >= 0, "ms.arange: expected n >= 0, got {}", count);
           return push_tensor(args.state(), at::arange(count, read_tensor_options(args, 2)));
         });
  define(ms, "ms", "randn", "(sizes, seed, { dtype, device }) -> Tensor",
         "Normal random numbers; the same seed gives the same numbers.", [](const Arguments& args) {
           const uint64_t seed =
               args.missing(2) ? 0 : static_cast<uint64_t>(args.integer(2, "seed"));
           at::Generator generator = at::detail::createCPUGenerator(seed);
           const at::Tensor host = at::randn(read_shape(args, 1), generator, at::TensorOptions());
           return push_tensor(args.state(), host.to(read_tensor_options(args, 3)));
         });
  ms["scope"] = sol::make_object(ms.lua_state(), &call_in_scope);
  document(ms["scope"], "ms.scope", "ms.scope(fn) -> what fn returns",
           "Calls fn; frees the tensors made inside, except those it returns.");
}

void bind_methods(ObjectType<TensorHandle>& type) {
  const auto method = [&type](const char* name, const char* signature, const char* text,
                              auto function) { type.method(name, signature, text, function); };
  method("add", "(other) -> Tensor", "Sum; other is a tensor or a number.",
         binary([](auto& a, auto& b) { return at::add(a, b); }));
  method("sub", "(other) -> Tensor", "Difference.",
         binary([](auto& a, auto& b) { return at::sub(a, b); }));
  method("mul", "(other) -> Tensor", "Product, element by element.",
         binary([](auto& a, auto& b) { return at::mul(a, b); }));
  method("div", "(other) -> Tensor", "Quotient, element by element.",
         binary([](auto& a, auto& b) { return at::div(a, b); }));
  method("matmul", "(other) -> Tensor", "Matrix product.",
         binary([](auto& a, auto& b) { return at::matmul(a, b); }));
  method("neg", "() -> Tensor", "Minus.", unary([](auto& a) { return at::neg(a); }));
  method("abs", "() -> Tensor", "Absolute values.", unary([](auto& a) { return at::abs(a); }));
  method("sqrt", "() -> Tensor", "Square roots.", unary([](auto& a) { return at::sqrt(a); }));
  method("exp", "() -> Tensor", "Exponentials.", unary([](auto& a) { return at::exp(a); }));
  method("log", "() -> Tensor", "Natural logarithms.", unary([](auto& a) { return at::log(a); }));
  method("clone", "() -> Tensor", "A copy.", unary([](auto& a) { return a.clone(); }));
  method("sum", "([dim]) -> Tensor", "Sum of all elements, or along a dimension.",
         reduction([](auto& a) { return a.sum(); }, [](auto& a, int64_t d) { return a.sum(d); }));
  method("mean", "([dim]) -> Tensor", "Mean of all elements, or along a dimension.",
         reduction([](auto& a) { return a.mean(); }, [](auto& a, int64_t d) { return a.mean(d); }));
  method("max", "([dim]) -> Tensor", "Largest element, or along a dimension.",
         reduction([](auto& a) { return a.max(); }, [](auto& a, int64_t d) { return a.amax(d); }));
  method("min", "([dim]) -> Tensor", "Smallest element, or along a dimension.",
         reduction([](auto& a) { return a.min(); }, [](auto& a, int64_t d) { return a.amin(d); }));
  method("norm", "([dim]) -> Tensor", "Euclidean norm, or along a dimension.",
         reduction([](auto& a) { return a.norm(); },
                   [](auto& a, int64_t d) { return at::linalg_vector_norm(a, 2, d); }));
  method("item", "() -> number", "The one element of a one-element tensor.", read_item);
  method("tolist", "() -> table", "All elements as nested tables.", [](const Arguments& args) {
    return nested_table(args.state(), args.self<TensorHandle>("Tensor").get(args.function_name()));
  });
  method("reshape", "(sizes) -> Tensor", "The same elements in another shape.",
         [](const Arguments& args) {
           const at::Tensor& tensor = args.self<TensorHandle>("Tensor").get(args.function_name());
           return push_tensor(args.state(), tensor.reshape(read_sizes(args, 2)));
         });
  method("transpose", "(dim, other) -> Tensor",
         "Two dimensions swapped; without arguments the last two.", [](const Arguments& args) {
           const at::Tensor& tensor = args.self<TensorHandle>("Tensor").get(args.function_name());
           if (args.missing(2)) return push_tensor(args.state(), tensor.transpose(-2, -1));
           return push_tensor(args.state(), tensor.transpose(read_dimension(args, 2, tensor),
                                                             read_dimension(args, 3, tensor)));
         });
  method("select", "(dim, position) -> Tensor", "One slice along a dimension; both count from 1.",
         select);
  method("to", "(dtype or device) -> Tensor",
         "The same numbers in another format or on another device.", convert_to);
  method("free", "()", "Gives the memory back now; the handle is empty afterwards.",
         [](const Arguments& args) { args.self<TensorHandle>("Tensor").free(); });
}

}  // namespace

void bind_tensor(sol::table ms) {
  ObjectType<TensorHandle> type(ms.lua_state(), "Tensor");
  bind_methods(type);
  type.operator_is("__add", "add");
  type.operator_is("__sub", "sub");
  type.operator_is("__mul", "mul");
  type.operator_is("__div", "div");
  type.operator_is("__unm", "neg");
  type.text([](const TensorHandle& handle) {
    return handle.is_freed() ? std::string("Tensor (freed)")
                             : describe_tensor(handle.get("tostring"));
  });
  type.fields({"shape", "dtype", "device", "bytes", "dims", "numel", "freed"}, &read_field);
  bind_makers(ms);
}

}  // namespace moonshard::bindings
