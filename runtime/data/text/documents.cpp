#include "runtime/data/text/documents.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include <sys/stat.h>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/utf8.h"

namespace moonshard::data {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Bytes from `at` on that are ASCII and not zero, eight at a time.
size_t plain_bytes(std::string_view bytes, size_t at) {
  const size_t begin = at;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, bytes.data() + at, 8);
    // The second part has a high bit for every byte that is zero (and may err beside one).
    if ((eight & 0x8080808080808080ull) != 0 ||
        ((eight - 0x0101010101010101ull) & 0x8080808080808080ull) != 0)
      break;
  }
  while (at < bytes.size() && static_cast<signed char>(bytes[at]) > 0) ++at;
  return at - begin;
}

namespace fs = std::filesystem;

constexpr const char* kFormats = ".txt, .json {\"text\": …} or .jsonl with one such per line";
constexpr size_t kPartBytes = 16u << 20;

// Where a long text may be cut: after a line's end, before a character that is not blank. Patterns
// of tokenizers end their pieces there. 0 when there is no such place yet.
size_t last_cut(std::string_view text) {
  for (size_t at = text.size(); at-- > 1;) {
    if (text[at - 1] != '\n') continue;
    if (!is_white_space(read_character(text, at).code)) return at;
  }
  return 0;
}

void read_text(const DocumentFile& file, bool replace, DocumentCounts& counts,
               const TakeDocument& take) {
  TextStream stream(file.path, replace, counts.repairs);
  std::string text;
  bool first = true;
  int64_t lines = 1;
  while (stream.read(text)) {
    if (text.size() < kPartBytes) continue;
    size_t cut = last_cut(text);
    if (cut == 0) {
      if (text.size() <= kMaxLineBytes) continue;
      cut = text.rfind('\n', text.size() - 2) + 1;  // of blank lines only
    }
    if (cut == 0) {
      throw IoError(fmt::format(
          "{}:{}: expected lines of at most {} bytes, got a longer one; break the text into lines",
          file.path.string(), lines + std::count(text.begin(), text.end(), '\n'), kMaxLineBytes));
    }
    take({std::string_view(text).substr(0, cut), first, false});
    lines += std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
    text.erase(0, cut);
    first = false;
  }
  if (first && text.empty()) {
    ++counts.empty_files;
    return;
  }
  ++counts.documents;
  take({text, first, true});
}

void take_text(std::string& text, const std::string& where, bool replace, DocumentCounts& counts,
               const TakeDocument& take) {
  check_zero_characters(text, replace, counts.repairs, where);
  if (text.empty()) {
    ++counts.empty_texts;
    return;
  }
  ++counts.documents;
  take({text, true, true});
}

int64_t change_time(const struct stat& status) {
  return static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void list_folder(const fs::path& folder, const fs::path& root, FolderListing& listing) {
  std::error_code error;
  auto entries = fs::recursive_directory_iterator(folder, error);
  const auto fail_on = [&](const fs::path& path) {
    if (error) {
      throw IoError(fmt::format("{}: cannot list the folder: {}; check the rights on it",
                                path.string(), error.message()));
    }
  };
  fail_on(folder);
  for (const auto end = fs::recursive_directory_iterator(); entries != end;) {
    const fs::path path = entries->path();
    struct stat status {};
    const bool there = ::lstat(path.c_str(), &status) == 0;
    DocumentFile file;
    if (path.filename().native().starts_with('.')) {
      ++listing.hidden;
      entries.disable_recursion_pending();
    } else if (there && S_ISLNK(status.st_mode)) {
      ++listing.links;
    } else if (there && S_ISREG(status.st_mode)) {
      if (document_kind(path, file.kind)) {
        file.path = path;
        file.name = fs::relative(path, root).generic_string();
        file.bytes = status.st_size;
        file.changed_ns = change_time(status);
        listing.files.push_back(std::move(file));
      } else {
        ++listing.other_files;
      }
    }
    entries.increment(error);
    fail_on(path);
  }
}

}  // namespace

TextStream::TextStream(const std::filesystem::path& path, bool replace, Repairs& repairs)
    : file_(ReadOnlyFile::open(path)), replace_(replace), repairs_(repairs) {}

void TextStream::fail(size_t at, const std::string& got) const {
  const auto lines = std::count(raw_.begin(), raw_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  throw IoError(fmt::format(
      "{}:{}: expected text in UTF-8, got {} at byte {}; convert the file (a UTF-16 or a binary "
      "file looks like this, too), or read it with invalid_utf8 = \"replace\"",
      file_.path().string(), line_ + lines, got, taken_ + static_cast<int64_t>(at)));
}

bool TextStream::read(std::string& text) {
  const size_t before = text.size();
  while (text.size() == before) {
    throw_if_interrupted();
    const int64_t count = std::min(kPieceBytes, file_.size() - position_);
    if (count == 0 && raw_.empty()) return false;
    const size_t kept = raw_.size();
    raw_.resize(kept + static_cast<size_t>(count));
    file_.read_at(position_, raw_.data() + kept, count, "text");
    const bool at_start = position_ == 0;
    position_ += count;
    if (at_start && raw_.starts_with(kByteOrderMark)) {
      ++repairs_.byte_order_marks;
      taken_ += static_cast<int64_t>(kByteOrderMark.size());
      raw_.erase(0, kByteOrderMark.size());
    }
    const bool ended = position_ == file_.size();
    // A character may go on in the next piece.
    take(text, ended || raw_.size() < 4 ? raw_.size() : raw_.size() - 3);
    if (ended && raw_.empty() && text.size() == before) return false;
  }
  return true;
}

void TextStream::take(std::string& text, size_t end) {
  const bool ended = position_ == file_.size();
  size_t at = 0;
  while (at < end) {
    const size_t plain = plain_bytes(std::string_view(raw_).substr(0, end), at);
    text.append(raw_, at, plain);
    at += plain;
    if (at >= end) break;
    const Utf8Character character = read_character(raw_, at);
    if (character.cut && !ended) break;
    const bool good = character.valid && character.code != 0;
    if (!good && !replace_) {
      fail(at, character.valid ? std::string("a zero byte")
                               : fmt::format("byte {:#04x}", static_cast<unsigned char>(raw_[at])));
    }
    if (good) {
      text.append(raw_, at, static_cast<size_t>(character.length));
    } else {
      text += kReplacement;
      ++repairs_.replaced_characters;
    }
    at += static_cast<size_t>(character.length);
  }
  line_ += std::count(raw_.begin(), raw_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  taken_ += static_cast<int64_t>(at);
  raw_.erase(0, at);
}

bool document_kind(const fs::path& path, DocumentKind& kind) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (ending == ".txt") {
    kind = DocumentKind::Text;
  } else if (ending == ".json") {
    kind = DocumentKind::Json;
  } else if (ending == ".jsonl") {
    kind = DocumentKind::JsonLines;
  } else {
    return false;
  }
  return true;
}

FolderListing list_documents(const fs::path& folder) {
  std::error_code none;
  MS_CHECK(fs::is_directory(folder, none), "data folder: expected a folder, got {}; check the path",
           in_quotes(folder.string()));
  FolderListing listing;
  list_folder(folder, folder, listing);
  std::sort(listing.files.begin(), listing.files.end(),
            [](const DocumentFile& a, const DocumentFile& b) { return a.name < b.name; });
  MS_CHECK(!listing.files.empty(),
           "data folder: expected files {} in {}, got none (files of other kinds: {}, hidden: {}, "
           "links, which are not followed: {})",
           kFormats, folder.string(), listing.other_files, listing.hidden, listing.links);
  return listing;
}

Json DocumentCounts::to_json() const {
  return {
      {"files", files},
      {"bytes", bytes},
      {"documents", documents},
      {"skipped",
       {{"empty_files", empty_files}, {"empty_texts", empty_texts}, {"blank_lines", blank_lines}}},
      {"repairs",
       {{"byte_order_marks", repairs.byte_order_marks},
        {"replaced_characters", repairs.replaced_characters}}}};
}

std::string& text_field(Json& value, const char* key, const std::string& where) {
  if (!value.is_object() || !value.contains(key)) {
    throw IoError(fmt::format("{}: expected an object with \"{}\", got {}", where, key,
                              value.is_object() ? "one without" : value.type_name()));
  }
  if (!value[key].is_string()) {
    throw IoError(fmt::format("{}: expected a text under \"{}\", got {}", where, key,
                              value[key].type_name()));
  }
  return value[key].get_ref<std::string&>();
}

void check_zero_characters(std::string& text, bool replace, Repairs& repairs,
                           const std::string& where) {
  for (size_t at = text.find('\0'); at != std::string::npos; at = text.find('\0', at)) {
    if (!replace) {
      throw IoError(fmt::format(
          "{}: expected text without zero characters, got one at byte {} of it; leave it out, or "
          "read the file with invalid_utf8 = \"replace\"",
          where, at));
    }
    text.replace(at, 1, kReplacement);
    ++repairs.replaced_characters;
  }
}

void read_json_lines(const fs::path& path, bool replace, DocumentCounts& counts,
                     const std::function<void(Json&, int64_t)>& take) {
  JsonLimits limits;
  limits.max_bytes = limits.max_string_bytes = kMaxLineBytes;
  TextStream stream(path, replace, counts.repairs);
  std::string text, line;
  int64_t number = 0;
  const auto take_line = [&](std::string_view bytes) {
    ++number;
    line = bytes;
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      ++counts.blank_lines;
      return;
    }
    if (replace) repair_surrogates(line, 0, true, counts.repairs);
    Json value = parse_json(line, fmt::format("{}:{}", path.string(), number), limits);
    take(value, number);
  };
  bool any = false;
  size_t searched = 0;
  while (stream.read(text)) {
    any = true;
    size_t begin = 0;
    for (size_t end = text.find('\n', searched); end != std::string::npos;
         end = text.find('\n', begin)) {
      take_line(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
    searched = text.size();
    if (text.size() > kMaxLineBytes) {
      throw IoError(fmt::format("{}:{}: expected lines of at most {} bytes, got a longer one",
                                path.string(), number + 1, kMaxLineBytes));
    }
  }
  if (!text.empty()) take_line(text);
  if (!any) ++counts.empty_files;
}

void read_documents(const DocumentFile& file, bool replace, DocumentCounts& counts,
                    const TakeDocument& take) {
  const std::string path = file.path.string();
  ++counts.files;
  counts.bytes += file.bytes;
  if (file.kind == DocumentKind::Text) {
    read_text(file, replace, counts, take);
  } else if (file.bytes == 0) {
    ++counts.empty_files;
  } else if (file.kind == DocumentKind::Json) {
    const int64_t found =
        read_json_texts(file.path, replace, counts.repairs, [&](std::string& text, int64_t line) {
          take_text(text, fmt::format("{}:{}", path, line), replace, counts, take);
        });
    if (found == 0) ++counts.empty_files;
  } else {
    read_json_lines(file.path, replace, counts, [&](Json& value, int64_t line) {
      const std::string where = fmt::format("{}:{}", path, line);
      take_text(text_field(value, "text", where), where, replace, counts, take);
    });
  }
  struct stat status {};
  const bool same = disk().stat(file.path.c_str(), status) == 0 && status.st_size == file.bytes &&
                    change_time(status) == file.changed_ns;
  if (!same) {
    throw IoError(fmt::format(
        "{}: expected a file that stays as it is while it is read, got a change; try again", path));
  }
}

}  // namespace moonshard::data
