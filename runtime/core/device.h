// Devices and dtypes by name. LibTorch's CUDA libraries are loaded when a GPU is first used, so
// that programs without a GPU start fast and run on machines that have none.
#pragma once

#include <exception>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace moonshard {

/// "auto" (a GPU when there is one), "cpu", "cuda", "cuda:1", and "meta" (shapes only, no memory).
/// Throws UsageError when a GPU is asked for and there is none, saying why.
c10::Device resolve_device(const std::string& name);

/// Number of GPUs LibTorch can use here; 0 with the reason in cuda_absence_reason().
int cuda_device_count();
std::string cuda_absence_reason();

/// Whether resolve_device has given out a GPU; asks nothing of the driver.
bool has_named_gpu();

/// "float32", "float64", "bfloat16", "float16", "int64", "bool", … and back.
c10::ScalarType dtype_from_name(const std::string& name);
std::string dtype_name(c10::ScalarType type);

/// Deterministic algorithms are a process-wide setting: on while a guard lives, then restored.
class DeterminismGuard {
 public:
  explicit DeterminismGuard(bool on);
  ~DeterminismGuard();
  DeterminismGuard(const DeterminismGuard&) = delete;
  DeterminismGuard& operator=(const DeterminismGuard&) = delete;

 private:
  bool on_, before_, efficient_attention_before_, fills_before_;
};

// LibTorch reports out-of-memory in three ways; here they become one error type.

/// The user's message when an exception means that memory ran out (host or device); "" for all
/// others.
std::string out_of_memory_message(const std::exception& error);

/// Whether a text, of whichever process, has the words of an error of ours that memory ran out.
bool says_out_of_memory(const std::string& text);

/// Call inside a catch block: throws OutOfMemoryError when the exception in flight means that
/// memory ran out, else the same exception again.
[[noreturn]] void rethrow_memory_errors();

/// Which GPU "cuda" and "auto" mean in this process. Call before any other GPU function: ranks of
/// one machine take one GPU each, and share them when there are fewer (index modulo count).
void set_default_gpu(int index);

}  // namespace moonshard
