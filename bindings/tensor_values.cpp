#include "bindings/tensor_values.h"

#include <unistd.h>

#include <ATen/ATen.h>

#include "bindings/convert.h"
#include "bindings/tensor_handle.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "runtime/core/device.h"

namespace moonshard::bindings {
namespace {

constexpr size_t kMaxDimensions = 64;
constexpr int64_t kMaxListedElements = 100'000'000;

struct TensorOptions {
  std::string dtype = "float32";
  std::string device = "cpu";
};

// Numbers out of nested tables. Both kinds are kept until it is known that all are integers.
struct Numbers {
  std::vector<int64_t> shape;
  std::vector<double> reals;
  std::vector<int64_t> integers;
  bool all_integers = true;
};

void fill_from_json(const Json& value, Numbers& numbers, size_t depth, const char* where) {
  if (!value.is_array()) {
    MS_CHECK(value.is_number() || value.is_boolean(), "{}: expected numbers in the table, got {}",
             where, value.type_name());
    MS_CHECK(depth == numbers.shape.size(), "{}: expected rows of equal length and depth", where);
    const bool is_integer = value.is_number_integer() || value.is_boolean();
    numbers.all_integers = numbers.all_integers && is_integer;
    numbers.integers.push_back(value.is_boolean() ? static_cast<int64_t>(value.get<bool>())
                               : is_integer       ? value.get<int64_t>()
                                                  : 0);
    numbers.reals.push_back(value.is_boolean() ? static_cast<double>(value.get<bool>())
                                               : value.get<double>());
    return;
  }
  if (depth == numbers.shape.size() && numbers.reals.empty()) {
    numbers.shape.push_back(static_cast<int64_t>(value.size()));
  }
  MS_CHECK(depth < numbers.shape.size() && depth < kMaxDimensions &&
               numbers.shape[depth] == static_cast<int64_t>(value.size()),
           "{}: expected rows of equal length and depth", where);
  for (const Json& item : value) fill_from_json(item, numbers, depth + 1, where);
}

void push_nested(lua_State* L, const at::Tensor& host) {
  MS_CHECK(lua_checkstack(L, 4) != 0, "Tensor:tolist: the Lua stack is full");
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

}  // namespace

at::TensorOptions read_tensor_options(const Arguments& args, int n) {
  static const OptionSchema schema("tensor", [](OptionSchema& s) {
    using T = TensorOptions;
    s.text<T>("dtype", &T::dtype, "number format, e.g. float32");
    s.text<T>("device", &T::device, "cpu, cuda or auto");
  });
  TensorOptions options;
  schema.assign_all(&options, args.options(n));
  return at::TensorOptions()
      .dtype(dtype_from_name(options.dtype))
      .device(resolve_device(options.device));
}

std::vector<int64_t> read_sizes(const Arguments& args, int n) {
  if (args.missing(n)) args.fail(n, "a list of sizes, e.g. {2, 3}");
  const std::vector<int64_t> sizes = args.sizes(n, "sizes");
  MS_CHECK(sizes.size() <= kMaxDimensions, "{}: expected at most {} dimensions, got {}",
           args.function_name(), kMaxDimensions, sizes.size());
  for (const int64_t size : sizes) {
    MS_CHECK(size >= -1, "{}: expected sizes >= 0, got {}", args.function_name(), size);
  }
  return sizes;
}

std::vector<int64_t> read_shape(const Arguments& args, int n) {
  // Options follow the sizes here, so several sizes come as a table.
  const std::vector<int64_t> sizes =
      args.is_integer(n) ? std::vector<int64_t>{args.integer(n, "size")} : read_sizes(args, n);
  // Allocating more than the machine has would not fail here but end the process later, on systems
  // that overcommit memory.
  const int64_t limit = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  int64_t total = 1;
  for (const int64_t size : sizes) {
    MS_CHECK(size >= 0, "{}: expected sizes >= 0, got {}", args.function_name(), size);
    MS_CHECK(!__builtin_mul_overflow(total, std::max<int64_t>(size, 1), &total) && total < limit,
             "{}: expected a tensor that fits this machine's {} bytes of memory, got more elements "
             "than that",
             args.function_name(), limit);
  }
  return sizes;
}

sol::object tensor_from_table(const Arguments& args) {
  Json value = args.json(1);
  if (value.is_object() && value.empty()) value = Json::array();
  if (!value.is_array() && !value.is_number()) args.fail(1, "a number or a table of numbers");
  Numbers numbers;
  fill_from_json(value, numbers, 0, args.function_name());
  const at::TensorOptions options = read_tensor_options(args, 2);
  const at::Tensor host = numbers.all_integers ? at::tensor(numbers.integers, at::kLong)
                                               : at::tensor(numbers.reals, at::kDouble);
  return push_tensor(args.state(), host.view(numbers.shape).to(options));
}

sol::object nested_table(lua_State* L, const at::Tensor& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.sizes()) elements *= std::max<int64_t>(size, 1);
  MS_CHECK(elements <= kMaxListedElements, "Tensor:tolist: expected at most {} elements, got {}",
           kMaxListedElements, elements);
  push_nested(L, tensor.detach().to(at::kCPU));
  sol::object result(L, -1);
  lua_pop(L, 1);
  return result;
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

}  // namespace moonshard::bindings
