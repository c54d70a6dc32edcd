#include "viewer/readers/index_file.h"

#include "runtime/base/errors.h"
#include "runtime/input/json_fields.h"
#include "runtime/records/point_index.h"
#include "viewer/readers/record_stream.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxIndexBytes = 512u << 20, kMaxIndexLineBytes = 1u << 20;
constexpr std::string_view kLineBegin = "{\"id\":\"";

}  // namespace

IndexFile::IndexFile(const InsideFolder& inside) {
  try {
    if (std::optional<OpenFile> file = inside.open("index.jsonl"))
      text_ = file->read_all(kMaxIndexBytes);
  } catch (const IoError&) {
    return;
  }
  const std::string_view text = text_;
  for (size_t begin = 0, end = text.find('\n'); end != std::string_view::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    const std::string_view line = text.substr(begin, end - begin);
    if (line.size() > kMaxIndexLineBytes || !line.starts_with(kLineBegin)) continue;
    const size_t quote = line.find('"', kLineBegin.size());
    if (quote == std::string_view::npos) continue;
    lines_[line.substr(kLineBegin.size(), quote - kLineBegin.size())] = line;
  }
}

bool IndexFile::read(const InsideFolder& inside, const std::string& id, PointSummary& point) const {
  const auto found = lines_.find(id);
  if (found == lines_.end()) return false;
  const std::optional<records::RecordStamp> file =
      inside.stamp(std::filesystem::path("points") / id / "result.json");
  if (!file) return false;
  double bytes = -1, seconds = -1, nanoseconds = -1;
  try {
    MemorySource source(found->second);
    JsonStream stream(source, "index.jsonl");
    begin_object(stream);
    read_fields(stream, [&](FieldReader& field) {
      field("bytes", bytes);
      field("seconds", seconds);
      field("nanoseconds", nanoseconds);
      read_summary_field(field, stream, point);
    });
    stream.next();  // nothing may follow
  } catch (const IoError&) {
    point = {};
    return false;
  }
  const auto whole = [](double number) {
    return number >= -1 && number < 9e15 ? static_cast<int64_t>(number) : -1;
  };
  const records::RecordStamp stamp{whole(bytes), whole(seconds), whole(nanoseconds)};
  if (!stamp.fits(*file)) {
    point = {};
    return false;
  }
  point.has_options = false;  // they are what differs from the plan
  return true;
}

}  // namespace moonshard::viewer
