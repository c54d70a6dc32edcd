#include "runtime/profile/trace.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include <torch/csrc/autograd/profiler_kineto.h>
#ifdef MOONSHARD_HAS_ZLIB
#include <zlib.h>
#endif

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/profile/context.h"

namespace moonshard::profile {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::atomic<bool> records_now{false};
thread_local bool records_here = false;

std::string with_rank(std::string text, const TraceInfo& info) {
  const Json about{{"rank", info.rank}, {"world_size", info.world}, {"backend", info.transport}};
  const Json what{{"what", info.what}};
  const size_t brace = text.find('{');
  if (brace == std::string::npos) return text;
  return text.insert(brace + 1, "\n  \"distributedInfo\": " + one_line(about) +
                                    ",\n  \"moonshard\": " + one_line(what) + ",");
}

#ifdef MOONSHARD_HAS_ZLIB
std::string compressed(const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  if (deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw IoError("trace: zlib cannot start");
  std::string bytes(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  const int done = deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  if (done != Z_STREAM_END) throw IoError("trace: zlib cannot compress it");
  return bytes;
}
#endif

}  // namespace

Trace::Trace(c10::Device device) {
  MS_CHECK(!records_now.exchange(true), "trace: expected one at a time, got a second");
  // Without a GPU Kineto would print an error to the user's screen.
  if (!device.is_cuda()) ::setenv("KINETO_LOG_LEVEL", "99", 0);
  // Kineto needs the slot that the allocators report to. The thread's debug information is set
  // aside, and only the context restored.
  const std::shared_ptr<Context> context = current_context();
  set_aside_ = c10::ThreadLocalDebugInfo::current();
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
  carry_context(context);
  records_here = true;
  try {
    std::set<ActivityType> activities{ActivityType::CPU};
    if (device.is_cuda()) activities.insert(ActivityType::CUDA);
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                       /*report_input_shapes=*/true,
                                                       /*profile_memory=*/true);
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities,
                             {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                              at::RecordScope::USER_SCOPE});
  } catch (...) {
    stop_listening();
    throw;
  }
}

Trace::~Trace() {
  if (!running_) return;
  try {
    profiler::disableProfiler();
  } catch (...) {  // report the step's own error
  }
  stop_listening();
}

void Trace::stop_listening() {
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(std::move(set_aside_));
  records_here = false;
  records_now.store(false);
}

void Trace::save(const std::filesystem::path& path, const TraceInfo& info) {
  running_ = false;
  std::unique_ptr<profiler::ProfilerResult> result;
  try {
    result = profiler::disableProfiler();
  } catch (...) {
    stop_listening();
    throw;
  }
  stop_listening();
  // Kineto writes an uncompressed file; ours adds the rank and is written atomically.
  const std::filesystem::path raw = path.string() + ".kineto";
  result->save(raw.string());
  std::ifstream file(raw, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  file.close();
  std::error_code ignored;
  std::filesystem::remove(raw, ignored);
  std::string whole = with_rank(text.str(), info);
  if (whole.empty()) throw IoError(path.string() + ": Kineto wrote no trace; is the disk full?");
#ifdef MOONSHARD_HAS_ZLIB
  if (path.extension() == ".gz") whole = compressed(whole);
#endif
  write_file_atomically(path, whole);
}

bool trace_is_recording() {
  return records_now.load();
}

bool trace_holds_this_thread() {
  return records_here;
}

std::string trace_file_name(int rank) {
#ifdef MOONSHARD_HAS_ZLIB
  return fmt::format("trace.rank{}.json.gz", rank);
#else
  return fmt::format("trace.rank{}.json", rank);
#endif
}

}  // namespace moonshard::profile
