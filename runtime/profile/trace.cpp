#include "runtime/profile/trace.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>
#include <string_view>

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

// What goes behind the file's first brace.
std::string about_text(const TraceInfo& info) {
  const Json about{{"rank", info.rank}, {"world_size", info.world}, {"backend", info.transport}};
  Json what{{"what", info.what}};
  if (info.update_bytes > 0) what["update_bytes"] = info.update_bytes;
  return "\n  \"distributedInfo\": " + one_line(about) + ",\n  \"moonshard\": " + one_line(what) +
         ",";
}

constexpr size_t kTracePiece = 1 << 20;

// Takes a trace's text piece by piece: it may be larger than memory.
class TraceWriter {
 public:
  explicit TraceWriter(const std::filesystem::path& path)
      : file_(path, StagedFile::OnInterrupt::GoOn), folder_(path.parent_path()) {
#ifdef MOONSHARD_HAS_ZLIB
    constexpr int kGzip = 15 + 16;
    is_compressed_ = path.extension() == ".gz";
    if (is_compressed_ &&
        deflateInit2(&stream_, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw IoError("trace: zlib cannot start");
#endif
  }
  ~TraceWriter() {
#ifdef MOONSHARD_HAS_ZLIB
    if (is_compressed_) deflateEnd(&stream_);
#endif
  }
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void add(std::string_view text) {
    put(text, /*is_last=*/false);
  }
  void finish() {
    put("", /*is_last=*/true);
    file_.finish();
    file_.commit();
    sync_folder(folder_);
  }

 private:
  void put(std::string_view text, [[maybe_unused]] bool is_last) {
#ifdef MOONSHARD_HAS_ZLIB
    if (is_compressed_) {
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
      stream_.avail_in = static_cast<uInt>(text.size());
      do {
        stream_.next_out = reinterpret_cast<Bytef*>(packed_.data());
        stream_.avail_out = static_cast<uInt>(packed_.size());
        if (deflate(&stream_, is_last ? Z_FINISH : Z_NO_FLUSH) == Z_STREAM_ERROR)
          throw IoError("trace: zlib cannot compress it");
        file_.write(packed_.data(), static_cast<int64_t>(packed_.size() - stream_.avail_out));
      } while (stream_.avail_out == 0);
      return;
    }
#endif
    file_.write(text.data(), static_cast<int64_t>(text.size()));
  }

  StagedFile file_;
  std::filesystem::path folder_;
  bool is_compressed_ = false;
#ifdef MOONSHARD_HAS_ZLIB
  z_stream stream_{};
  std::string packed_ = std::string(kTracePiece, '\0');
#endif
};

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
    // Which stream waited for which event: without it a critical path has to guess.
    torch::profiler::impl::ExperimentalConfig more;
    more.enable_cuda_sync_events = device.is_cuda();
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                       /*report_input_shapes=*/true,
                                                       /*profile_memory=*/true,
                                                       /*with_stack=*/false, /*with_flops=*/false,
                                                       /*with_modules=*/false, more);
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
  result.reset();  // the events are in the file now
  try {
    add_about_trace(raw, path, info);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(raw, ignored);
    throw;
  }
  std::error_code ignored;
  std::filesystem::remove(raw, ignored);
}

void add_about_trace(const std::filesystem::path& raw, const std::filesystem::path& path,
                     const TraceInfo& info) {
  const ReadOnlyFile file = ReadOnlyFile::open(raw);
  if (file.size() == 0) throw IoError(path.string() + ": Kineto wrote no trace; is the disk full?");
  TraceWriter writer(path);
  std::string piece;
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(piece.size())) {
    piece.resize(static_cast<size_t>(std::min<int64_t>(kTracePiece, file.size() - at)));
    file.read_at(at, piece.data(), static_cast<int64_t>(piece.size()), "the trace");
    const size_t brace = at == 0 ? piece.find('{') : std::string::npos;
    const size_t head = brace == std::string::npos ? 0 : brace + 1;
    writer.add(std::string_view(piece).substr(0, head));
    if (head > 0) writer.add(about_text(info));
    writer.add(std::string_view(piece).substr(head));
  }
  writer.finish();
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
