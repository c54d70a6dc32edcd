// Tensors for Lua: makers (ms.zeros …), arithmetic that experiments need, and a useful tostring.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/tensor_handle.h"
#include "bindings/usertype.h"
#include "runtime/core/device.h"
#include "runtime/core/options.h"

namespace moonshard::bindings {
namespace {

struct TensorOptions {
  std::string dtype = "float32";
  std::string device = "cpu";
};

at::TensorOptions read_tensor_options(const Arguments& args, int n) {
  static const OptionSchema schema = [] {
    OptionSchema s("tensor");
    s.text<TensorOptions>("dtype", &TensorOptions::dtype, "number format, e.g. float32");
    s.text<TensorOptions>("device", &TensorOptions::device, "cpu, cuda or auto");
    return s;
  }();
  TensorOptions options;
  schema.assign_all(&options, args.options(n));
  return at::TensorOptions()
      .dtype(dtype_from_name(options.dtype))
      .device(resolve_device(options.device));
}

std::vector<int64_t> read_shape(const Arguments& args, int n) {
  if (args.missing(n)) args.fail(n, "a list of sizes, e.g. {2, 3}");
  const std::vector<int64_t> sizes = args.value(n).get_type() == sol::type::table
                                         ? args.sizes(n, "sizes")
                                         : std::vector<int64_t>{args.integer(n, "size")};
  int64_t total = 1;
  for (const int64_t size : sizes) {
    MS_CHECK(size >= 0, "{}: expected sizes >= 0, got {}", args.function_name(), size);
    MS_CHECK(!__builtin_mul_overflow(total, std::max<int64_t>(size, 1), &total) &&
                 total < (int64_t{1} << 50),
             "{}: expected a tensor that fits memory, got sizes of more than 2^50 elements",
             args.function_name());
  }
  return sizes;
}

// ---- from and to Lua tables -------------------------------------------------------------------

void fill_from_json(const Json& value, std::vector<int64_t>& shape, std::vector<double>& data,
                    size_t depth, const char* where) {
  if (!value.is_array()) {
    MS_CHECK(value.is_number() || value.is_boolean(), "{}: expected numbers in the table, got {}",
             where, value.type_name());
    MS_CHECK(depth == shape.size(), "{}: expected rows of equal length and depth", where);
    data.push_back(value.is_boolean() ? static_cast<double>(value.get<bool>())
                                      : value.get<double>());
    return;
  }
  if (depth == shape.size() && data.empty()) shape.push_back(static_cast<int64_t>(value.size()));
  MS_CHECK(depth < shape.size() && shape[depth] == static_cast<int64_t>(value.size()),
           "{}: expected rows of equal length and depth", where);
  for (const Json& item : value) fill_from_json(item, shape, data, depth + 1, where);
}

sol::object from_table(const Arguments& args) {
  Json value;
  if (args.value(1).get_type() == sol::type::table) {
    value = args.json(1);
    if (value.is_object() && value.empty()) value = Json::array();
  } else {
    value = args.number(1, "value");
  }
  std::vector<int64_t> shape;
  std::vector<double> data;
  fill_from_json(value, shape, data, 0, args.function_name());
  const at::Tensor host = at::tensor(data, at::kDouble).view(shape);
  return push_tensor(args.state(), host.to(read_tensor_options(args, 2)));
}

void push_nested(lua_State* L, const at::Tensor& host) {
  if (host.dim() == 0) {
    if (at::isIntegralType(host.scalar_type(), true)) return push_integer(L, host.item<int64_t>());
    lua_pushnumber(L, host.item<double>());
    return;
  }
  lua_createtable(L, static_cast<int>(host.size(0)), 0);
  for (int64_t i = 0; i < host.size(0); ++i) {
    push_nested(L, host[i]);
    lua_rawseti(L, -2, static_cast<int>(i + 1));
  }
}

sol::object nested_table(lua_State* L, const at::Tensor& tensor) {
  push_nested(L, tensor.detach().to(at::kCPU));
  sol::object result(L, -1);
  lua_pop(L, 1);
  return result;
}

// ---- tostring ---------------------------------------------------------------------------------

std::string number_text(const at::Tensor& scalar) {
  if (at::isIntegralType(scalar.scalar_type(), true))
    return fmt::format("{}", scalar.item<int64_t>());
  return fmt::format("{:.4g}", scalar.item<double>());
}

void append_corner(std::string& text, const at::Tensor& host, int indent) {
  constexpr int64_t kShown = 3;
  if (host.dim() == 0) {
    text += number_text(host);
    return;
  }
  text += "[";
  const int64_t size = host.size(0);
  for (int64_t i = 0; i < size; ++i) {
    if (size > 2 * kShown && i == kShown) {
      text += host.dim() > 1 ? ",\n" + std::string(static_cast<size_t>(indent + 1), ' ') + "..."
                             : ", ...";
      i = size - kShown;
    }
    if (i > 0)
      text += host.dim() > 1 ? ",\n" + std::string(static_cast<size_t>(indent + 1), ' ') : ", ";
    append_corner(text, host[i], indent + 1);
  }
  text += "]";
}

std::string describe_tensor(const at::Tensor& tensor) {
  std::string sizes;
  for (const int64_t size : tensor.sizes())
    sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
  std::string text = fmt::format("Tensor {} [{}] {} {} bytes", dtype_name(tensor.scalar_type()),
                                 sizes, tensor.device().str(), tensor.nbytes());
  if (tensor.is_meta() || tensor.numel() == 0) return text;
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kDouble);
  text += fmt::format(", min {:.4g} mean {:.4g} max {:.4g}\n", values.min().item<double>(),
                      values.mean().item<double>(), values.max().item<double>());
  append_corner(text, tensor.detach().to(at::kCPU), 0);
  return text;
}

// ---- arithmetic -------------------------------------------------------------------------------

// An operand may be a tensor or a number: 2 * t, t + u.
at::Tensor operand(const Arguments& args, int n, const at::Tensor* like) {
  if (args.is<TensorHandle>(n))
    return args.object<TensorHandle>(n, "Tensor").get(args.function_name());
  const double number = args.number(n, "a Tensor or a number");
  return at::scalar_tensor(
      number, at::TensorOptions().dtype(
                  like != nullptr && like->is_floating_point() ? like->scalar_type() : at::kFloat));
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

// Fields: t.shape, t.dtype, t.device, t.bytes, t.dims. Any other name is a mistake and says so.
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
         from_table);
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
  define(ms, "ms", "scope", "(fn) -> what fn returns",
         "Calls fn; frees the tensors made inside, except those it returns.",
         [](const Arguments& args) {
           return run_in_scope(args.state(), args.function(1, "to call"));
         });
}

void bind_methods(sol::table type) {
  const auto method = [&type](const char* name, const char* signature, const char* text,
                              auto function) {
    define(type, "Tensor:", name, signature, text, function);
  };
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
           return push_tensor(args.state(), tensor.reshape(args.sizes(2, "sizes")));
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
  lua_State* L = ms.lua_state();
  auto type = new_type<TensorHandle>(L, "moonshard.Tensor");
  sol::table methods(L, sol::create);
  bind_methods(methods);
  add_methods(type, methods, {"shape", "dtype", "device", "bytes", "dims", "numel", "freed"});
  const auto meta = [&](sol::meta_function name, const char* method) {
    type[name] = methods[method].get<sol::object>();
  };
  meta(sol::meta_function::addition, "add");
  meta(sol::meta_function::subtraction, "sub");
  meta(sol::meta_function::multiplication, "mul");
  meta(sol::meta_function::division, "div");
  meta(sol::meta_function::unary_minus, "neg");
  add_text(type, "Tensor", [](const TensorHandle& handle) {
    return handle.is_freed() ? std::string("Tensor (freed)")
                             : describe_tensor(handle.get("tostring"));
  });
  add_fields(type, "Tensor", read_field);
  type[sol::meta_function::new_index] = [](sol::variadic_args va) -> void {
    const Arguments args(va, "Tensor");
    args.fail(2, "no assignment (fields of a tensor are read-only)");
  };
  bind_makers(ms);
}

}  // namespace moonshard::bindings
