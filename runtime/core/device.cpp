#include "runtime/core/device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/core/allocators.h"

#if defined(__aarch64__)

namespace {

// LibTorch's BLAS on aarch64 (NVPL) selects kernels by the CPU's name. Under a hypervisor that
// hides SVE from a CPU that has it by name (a Neoverse V1 guest, for one), its first matrix product
// loops for ever. Type 1 selects the kernels without SVE. The library reads the variable at its
// first call, so a static constructor is early enough; a value set by the user is kept.
__attribute__((constructor)) void choose_blas_kernels() {
  constexpr unsigned long kHasSve = 1ul << 22;  // HWCAP_SVE
  if ((getauxval(AT_HWCAP) & kHasSve) == 0) setenv("NVPL_BLAS_DEBUG_CPU_TYPE", "1", 0);
}

}  // namespace

#endif

namespace moonshard {
namespace {

// oneDNN would leave a perf-PID.map in the temporary folder for every process that multiplies; who
// runs perf sets the variable.
__attribute__((constructor)) void leave_no_perf_maps() {
  setenv("ONEDNN_JIT_PROFILE", "0", 0);
}

int default_gpu = 0;
std::atomic<bool> gpu_was_named{false};

struct CudaState {
  int devices = 0;
  std::string reason;  ///< why there is no GPU
};

// LibTorch looks for its CUDA library once and caches the answer, so the library must be loaded
// before the first query. All GPU queries go through here.
const CudaState& cuda_state() {
  static const CudaState state = [] {
    CudaState found;
    if (::access("/dev/nvidiactl", F_OK) != 0 && ::access("/dev/nvidia0", F_OK) != 0) {
      found.reason = "no NVIDIA driver here (no /dev/nvidiactl)";
      return found;
    }
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      const char* error = dlerror();
      found.reason = std::string("this LibTorch has no CUDA: ") + (error != nullptr ? error : "");
      return found;
    }
    try {
      let_segments_grow();
      found.devices = at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
      // Accumulate 16-bit products in float32 (no reduced-precision reduction).
      if (found.devices > 0) at::globalContext().setAllowBF16ReductionCuBLAS(false);
      if (found.devices > 0) {
        default_gpu %= found.devices;
        // Our own kernels launch on the current device.
        c10::impl::VirtualGuardImpl(c10::kCUDA)
            .setDevice(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(default_gpu)));
      }
      if (found.devices == 0)
        found.reason = "the driver shows no GPU (nvidia-smi; CUDA_VISIBLE_DEVICES)";
    } catch (const std::exception& error) {
      found.reason = error.what();
    }
    return found;
  }();
  return state;
}

constexpr std::array<std::pair<const char*, c10::ScalarType>, 9> kDtypes = {{
    {"float32", c10::ScalarType::Float},
    {"float64", c10::ScalarType::Double},
    {"bfloat16", c10::ScalarType::BFloat16},
    {"float16", c10::ScalarType::Half},
    {"int64", c10::ScalarType::Long},
    {"int32", c10::ScalarType::Int},
    {"uint8", c10::ScalarType::Byte},
    {"int8", c10::ScalarType::Char},
    {"bool", c10::ScalarType::Bool},
}};

}  // namespace

void set_default_gpu(int index) {
  default_gpu = index;
}

int cuda_device_count() {
  return cuda_state().devices;
}
std::string cuda_absence_reason() {
  return cuda_state().reason;
}

c10::Device resolve_device(const std::string& name) {
  if (name == "cpu") return c10::Device(c10::kCPU);
  if (name == "meta") return c10::Device(c10::kMeta);
  if (name == "auto") {
    if (cuda_device_count() == 0) return c10::Device(c10::kCPU);
    gpu_was_named = true;
    return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(default_gpu));
  }
  const bool is_cuda = name == "cuda" || name.rfind("cuda:", 0) == 0;
  MS_CHECK(is_cuda, "device: expected auto, cpu, cuda or cuda:N, got '{}'", name);
  MS_CHECK(cuda_device_count() > 0,
           "device: expected a GPU for '{}', got none: {}; use device = \"cpu\" or run "
           "'moonshard doctor'",
           name, cuda_absence_reason());
  int index = default_gpu;
  const char* end = name.data() + name.size();
  const bool is_number = name == "cuda" || std::from_chars(name.data() + 5, end, index).ptr == end;
  MS_CHECK(is_number && index >= 0 && index < cuda_device_count(),
           "device: expected cuda:0 to cuda:{}, got '{}'", cuda_device_count() - 1, name);
  gpu_was_named = true;
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

bool has_named_gpu() {
  return gpu_was_named;
}

c10::ScalarType dtype_from_name(const std::string& name) {
  std::string known;
  for (const auto& [text, type] : kDtypes) {
    if (name == text) return type;
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  throw UsageError(fmt::format("dtype: expected one of {}, got '{}'", known, name));
}

std::string dtype_name(c10::ScalarType type) {
  for (const auto& [text, known] : kDtypes) {
    if (known == type) return text;
  }
  return c10::toString(type);
}

DeterminismGuard::DeterminismGuard(bool on)
    : on_(on),
      before_(at::globalContext().deterministicAlgorithms()),
      efficient_attention_before_(at::globalContext().userEnabledMemEfficientSDP()),
      fills_before_(at::globalContext().deterministicFillUninitializedMemory()) {
  if (!on_) return;
  // cuBLAS is reproducible with a workspace of its own for every stream, which LibTorch gives it in
  // any case. Not by CUBLAS_WORKSPACE_CONFIG: LibTorch parses it at every product, by a regular
  // expression that takes the host three times as long as the launch.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  // The memory-efficient kernel's backward sums in no fixed order; flash and plain attention are
  // deterministic.
  at::globalContext().setSDPUseMemEfficient(false);
  // Filling every new tensor shows who reads before writing, but tripled what a step launches.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

DeterminismGuard::~DeterminismGuard() {
  if (!on_) return;
  at::globalContext().setDeterministicAlgorithms(before_, false);
  at::globalContext().setSDPUseMemEfficient(efficient_attention_before_);
  at::globalContext().setDeterministicFillUninitializedMemory(fills_before_);
}

std::string out_of_memory_message(const std::exception& error) {
  constexpr const char* kAdvice = "lower batch_size or seq_length, or make smaller tensors";
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return fmt::format("memory: the host has none left; {}", kAdvice);
  }
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  if (torch_error == nullptr) return "";
  std::string text = torch_error->what_without_backtrace();
  // The CPU allocator has no error type, only this message.
  const bool is_host = text.find("not enough memory") != std::string::npos ||
                       text.find("can't allocate memory") != std::string::npos;
  if (!is_host && dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr) return "";
  const size_t start = text.find("you tried to allocate");
  if (start != std::string::npos) text = text.substr(start);
  // The figures come first; the rest is LibTorch's general advice.
  const size_t advice = text.find(" Including non-PyTorch memory");
  if (advice != std::string::npos) text.resize(advice);
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return fmt::format("memory: {}; {}", text, kAdvice);
}

bool says_out_of_memory(const std::string& text) {
  // The limit's and LibTorch's words behind ours (out_of_memory_message, profile/memory.cpp).
  static constexpr const char* kWords[] = {
      "memory: tried to allocate", "memory: you tried to allocate", "memory: CUDA out of memory",
      "memory: the host has none"};
  return std::ranges::any_of(
      kWords, [&](const char* words) { return text.find(words) != std::string::npos; });
}

void rethrow_memory_errors() {
  try {
    throw;
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string message = out_of_memory_message(error);
    if (message.empty()) throw;
    throw OutOfMemoryError(message, -1);
  }
}

}  // namespace moonshard
