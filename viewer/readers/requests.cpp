#include "viewer/readers/requests.h"

#include <filesystem>

#include "runtime/input/open_file.h"
#include "runtime/records/reader.h"
#include "viewer/readers/codec_fields.h"
#include "viewer/readers/file_rights.h"
#include "viewer/readers/limited_process.h"
#include "viewer/readers/readers.h"
#include "viewer/tracing/memory_snapshot.h"
#include "viewer/tracing/trace.h"
#include "viewer/tracing/trace_path.h"

namespace moonshard::viewer {

template <class T>
void fields(auto& a, ReadAnswer<T>& v) {
  a(v.index, v.error, v.value);
}

namespace {

namespace fs = std::filesystem;
using Answer = std::function<void(std::string_view part)>;

// Progress of one of several equal parts.
ReadControl part_of(const ReadControl& whole, size_t index, size_t count) {
  ReadControl part = whole;
  if (whole.progress && count > 1) {
    part.progress = [&whole, index, count](double share) {
      whole.progress((static_cast<double>(index) + share) / static_cast<double>(count));
    };
  }
  return part;
}

template <class T, class Read>
void answer_each(const ReadRequest& request, const ReadControl& control, const Answer& answer,
                 const Read& read) {
  for (size_t i = 0; i < request.names.size(); ++i) {
    ReadAnswer<T> part;
    part.index = static_cast<uint32_t>(i);
    try {
      // A thousand small folders need no thousand steps of progress.
      const bool tells = request.names.size() < 20 || i % 20 == 0;
      const ReadControl own = part_of(control, i, request.names.size());
      part.value = read(request.names[i], tells ? own : ReadControl());
    } catch (const std::exception& problem) {
      part.value = T();
      part.error = problem.what();
    }
    answer(encode(part));
  }
}

// A file of the run folder, or an IoError when it leads out of it or is not there.
std::string path_inside(const std::string& folder, const std::string& name) {
  const fs::path path = fs::path(folder) / name;
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw IoError(path.string() + ": is not there (any more); F5 reads the folder again");
  }
  if (!records::lies_inside(folder, path)) {
    throw IoError(path.string() + ": leads out of the run folder; it is not opened");
  }
  if (!fs::is_regular_file(path, error)) {
    throw IoError(path.string() + ": expected a file, got something else; it is not opened");
  }
  return path.string();
}

std::string answer_file(const ReadRequest& request, const ReadControl& control) {
  using Kind = ReadRequest::Kind;
  std::vector<fs::path> files;
  for (const std::string& name : request.names) files.push_back(path_inside(request.folder, name));
  if (files.empty()) throw IoError("reading: no file was named");
  const std::string& first = files.front().string();
  if (request.kind == Kind::Trace) return encode(read_trace(files, control));
  if (request.kind == Kind::Path) return encode(read_path(first, control));
  if (request.kind == Kind::Snapshot) return encode(read_snapshot(first, control));
  if (request.kind == Kind::Log) return encode(read_log(first));
  if (request.kind == Kind::Table) return encode(read_table(first));
  if (request.kind != Kind::Plot) throw IoError("reading: unknown request");
  return encode(records::plot_spec_from_json(read_json_file(first), first));
}

template <class T>
void read_each(const ReadRequest& request, const ProgressFunction& progress, const StopFlag& stop,
               const std::function<void(ReadAnswer<T>)>& on_answer) {
  read_in_process(encode(request), progress, stop, [&](std::string_view part) {
    auto answer = decode<ReadAnswer<T>>(part);
    check_decoded(answer.value);
    if (answer.index >= request.names.size()) {
      throw IoError("reading process: answers what nobody asked");
    }
    on_answer(std::move(answer));
  });
}

}  // namespace

void answer_read_request(std::string_view bytes, const ReadControl& control, const Answer& answer) {
  const ReadRequest request = decode<ReadRequest>(bytes);
  using Kind = ReadRequest::Kind;
  restrict_to_folders(request.kind == Kind::Runs ? request.names
                                                 : std::vector<std::string>{request.folder});
  if (request.kind == Kind::Runs) {
    answer_each<RunData>(request, control, answer, read_run);
  } else if (request.kind == Kind::Details) {
    answer_each<PointDetail>(request, control, answer,
                             [&](const std::string& id, const ReadControl& own) {
                               return read_point_detail(request.folder, id, own);
                             });
  } else {
    answer(answer_file(request, control));
  }
}

void read_runs(const std::vector<std::string>& folders, const ProgressFunction& progress,
               const StopFlag& stop, const std::function<void(RunAnswer)>& on_run) {
  ReadRequest request{ReadRequest::Kind::Runs, "", {}};
  // From the root: the reading process may live in another folder than this one does by now.
  for (const std::string& folder : folders) request.names.push_back(whole_path(folder));
  read_each<RunData>(request, progress, stop, on_run);
}

void read_details(const std::string& folder, const std::vector<std::string>& ids,
                  const ProgressFunction& progress, const StopFlag& stop,
                  const std::function<void(DetailAnswer)>& on_detail) {
  read_each<PointDetail>({ReadRequest::Kind::Details, whole_path(folder), ids}, progress, stop,
                         on_detail);
}

template <class T>
T read_file(const ReadRequest& request, const ProgressFunction& progress, const StopFlag& stop) {
  T value{};
  bool came = false;
  const ReadRequest whole{request.kind, whole_path(request.folder), request.names};
  read_in_process(encode(whole), progress, stop, [&](std::string_view part) {
    value = decode<T>(part);
    check_decoded(value);
    came = true;
  });
  if (!came) throw IoError("reading process: gave no answer");
  return value;
}

template Trace read_file(const ReadRequest&, const ProgressFunction&, const StopFlag&);
template TracePath read_file(const ReadRequest&, const ProgressFunction&, const StopFlag&);
template MemorySnapshot read_file(const ReadRequest&, const ProgressFunction&, const StopFlag&);
template std::string read_file(const ReadRequest&, const ProgressFunction&, const StopFlag&);
template records::CsvTable read_file(const ReadRequest&, const ProgressFunction&, const StopFlag&);
template records::PlotSpec read_file(const ReadRequest&, const ProgressFunction&, const StopFlag&);

}  // namespace moonshard::viewer
