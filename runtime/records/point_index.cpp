#include "runtime/records/point_index.h"

#include <charconv>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/base/files.h"
#include "runtime/records/reader.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLineBytes = 1u << 20;
constexpr int64_t kChunkBytes = 1 << 20;

std::optional<RecordStamp> stamp_of_record(const fs::path& folder, const std::string& id) {
  struct stat status {};
  const fs::path file = folder / "points" / id / "result.json";
  if (disk().lstat(file.c_str(), status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return RecordStamp{status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

PointIndex::PointIndex(fs::path folder)
    : folder_(std::move(folder)), file_(folder_ / "index.jsonl") {
  if (!is_there(file_) || !lies_inside(folder_, file_)) return;
  try {
    const ReadOnlyFile file = ReadOnlyFile::open(file_);
    std::string text;
    uint64_t begin = 0;  // of text, in the file
    for (int64_t at = 0; at < file.size(); at += kChunkBytes) {
      const size_t before = text.size();
      const int64_t bytes = std::min(kChunkBytes, file.size() - at);
      text.resize(before + static_cast<size_t>(bytes));
      file.read_at(at, text.data() + before, bytes, "index");
      size_t done = 0;
      for (size_t end = text.find('\n', before); end != std::string::npos;
           end = text.find('\n', done)) {
        take_line(std::string_view(text).substr(done, end - done), begin + done);
        done = end + 1;
      }
      // What is longer than any line is let go of, so that a file without ends of lines is not
      // held.
      if (text.size() - done > kMostLineBytes) done = text.size();
      text.erase(0, done);
      begin += done;
    }
  } catch (const IoError&) {
    places_.clear();  // the records say it all, only slower
  }
}

// The first keys of a line are read as PointIndex::add writes them; the rest when it is asked for.
void PointIndex::take_line(std::string_view line, uint64_t begin) {
  if (line.size() > kMostLineBytes) return;
  std::string_view rest = line;
  const auto text_after = [&](std::string_view key) {
    const size_t end = rest.starts_with(key) ? rest.find('"', key.size()) : std::string_view::npos;
    if (end == std::string_view::npos) return std::string_view();
    const std::string_view text = rest.substr(key.size(), end - key.size());
    rest.remove_prefix(end + 1);
    return text;
  };
  const auto number_after = [&](std::string_view key) {
    int64_t number = -1;
    if (!rest.starts_with(key)) return number;
    rest.remove_prefix(key.size());
    const char* end = std::from_chars(rest.data(), rest.data() + rest.size(), number).ptr;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    return number;
  };
  const std::string id(text_after("{\"id\":\"").substr(0, 65));
  const std::string status(text_after(",\"status\":\"").substr(0, 64));
  RecordStamp stamp;
  stamp.bytes = number_after(",\"bytes\":");
  stamp.seconds = number_after(",\"seconds\":");
  stamp.nanoseconds = number_after(",\"nanoseconds\":");
  if (!is_plain_name(id) || status.empty() || stamp.nanoseconds < 0) return;
  places_[id] = {begin, static_cast<uint32_t>(line.size()), stamp, status};
}

bool PointIndex::is_current(const std::string& id, const Place& place) const {
  const std::optional<RecordStamp> stamp = stamp_of_record(folder_, id);
  return stamp && place.stamp.fits(*stamp);
}

std::optional<std::string> PointIndex::status_of(const std::string& id) const {
  const auto found = places_.find(id);
  if (found == places_.end() || !is_current(id, found->second)) return std::nullopt;
  return found->second.status;
}

std::optional<IndexEntry> PointIndex::find(const std::string& id) const {
  const auto found = places_.find(id);
  if (found == places_.end() || !is_current(id, found->second)) return std::nullopt;
  try {
    const Place& place = found->second;
    std::string line(place.length, '\0');
    ReadOnlyFile::open(file_).read_at(static_cast<int64_t>(place.begin), line.data(),
                                      static_cast<int64_t>(line.size()), "index");
    const Json json = parse_json(line, "index.jsonl");
    IndexEntry entry;
    entry.id = id;
    entry.status = string_or(json, "status", "");
    entry.error = string_or(json, "error", "");
    entry.digest = string_or(json, "digest", "");
    if (json.contains("options") && json["options"].is_object()) entry.options = json["options"];
    if (json.contains("metrics") && json["metrics"].is_object()) entry.metrics = json["metrics"];
    if (const auto own = json.find("own_metrics"); own != json.end() && own->is_array()) {
      for (const Json& name : *own)
        if (name.is_string()) entry.own_metrics.push_back(name.get<std::string>());
    }
    return entry;
  } catch (const IoError&) {
    return std::nullopt;
  }
}

void PointIndex::add(IndexEntry entry) {
  const std::optional<RecordStamp> stamp = stamp_of_record(folder_, entry.id);
  if (!stamp) return;
  Json json{{"id", entry.id},
            {"status", entry.status},
            {"bytes", stamp->bytes},
            {"seconds", stamp->seconds},
            {"nanoseconds", stamp->nanoseconds}};
  if (!entry.error.empty()) json["error"] = entry.error;
  if (!entry.digest.empty()) json["digest"] = entry.digest;
  if (!entry.options.empty()) json["options"] = entry.options;
  json["metrics"] = entry.metrics;
  if (!entry.own_metrics.empty()) json["own_metrics"] = entry.own_metrics;
  std::string line = one_line(json) + "\n";
  struct stat status {};
  const bool has_file = disk().lstat(file_.c_str(), status) == 0;
  const uint64_t begin = has_file ? static_cast<uint64_t>(status.st_size) : 0;
  if (begin > 0) {
    // A writer that was killed, or a disk that was full, may have left a part of a line.
    char last = '\n';
    ReadOnlyFile::open(file_).read_at(static_cast<int64_t>(begin) - 1, &last, 1, "index");
    if (last != '\n') line = "\n" + line;
  }
  append_to_file(file_, line, Access::Shared);
  const size_t blank = line.front() == '\n' ? 1 : 0;
  places_[entry.id] = {begin + blank, static_cast<uint32_t>(line.size() - 1 - blank), *stamp,
                       entry.status};
}

}  // namespace moonshard::records
