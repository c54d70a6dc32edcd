// The documents of a folder: .txt files (one document each), .json files ({"text": …} or a list of
// such) and .jsonl files (one such per line), also in folders below, in the order of their names.
// Files are read as streams. What is passed over or repaired is counted; anything else that is not
// as expected is an IoError with file and line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/json.h"

namespace moonshard::data {

// A file's bytes as valid UTF-8, in pieces of about a MiB, whatever the file's size. Every consumer
// (documents.cpp) can rely on it: what is ill-formed has been repaired and counted, or was an error
// with the file, line and byte.

/// What reading changed. Counted, never silent.
struct Repairs {
  int64_t byte_order_marks = 0;     ///< left out at a file's start
  int64_t replaced_characters = 0;  ///< ill-formed UTF-8, zero bytes and lone surrogates: U+FFFD
};

class TextStream {
 public:
  /// With `replace` ill-formed UTF-8 and zero bytes become U+FFFD, else they are errors.
  TextStream(const std::filesystem::path& path, bool replace, Repairs& repairs);

  /// Appends the next whole characters. False at the end, with nothing appended. Throws IoError
  /// "file:line: …", also when the file becomes shorter; Interrupted when the user asked to stop.
  bool read(std::string& text);
  /// Bytes of the file, when it was opened.
  int64_t size() const { return file_.size(); }

 private:
  void take(std::string& text, size_t end);
  [[noreturn]] void fail(size_t at, const std::string& got) const;

  ReadOnlyFile file_;
  bool replace_;
  Repairs& repairs_;
  int64_t position_ = 0;  ///< of the next read
  int64_t taken_ = 0;     ///< bytes before raw_
  int64_t line_ = 1;
  std::string raw_;
};

/// Most bytes of one line, one JSON text, and one .jsonl value.
inline constexpr size_t kMaxLineBytes = 64u << 20;

enum class DocumentKind { Text, Json, JsonLines };

struct DocumentFile {
  std::filesystem::path path;
  std::string name;  ///< relative to the folder, with '/'
  DocumentKind kind = DocumentKind::Text;
  int64_t bytes = 0;
  int64_t changed_ns = 0;
};

struct FolderListing {
  std::vector<DocumentFile> files;  ///< sorted by name, the same on every machine
  int64_t other_files = 0;          ///< of other kinds
  int64_t hidden = 0;               ///< files and folders whose name begins with a dot
  int64_t links = 0;                ///< never followed: they may lead out of the folder
};

/// Throws UsageError when it is no folder or has none of these files, IoError when a folder cannot
/// be read.
FolderListing list_documents(const std::filesystem::path& folder);

/// The kind that a file's name says, whatever the case of its letters.
bool document_kind(const std::filesystem::path& path, DocumentKind& kind);

struct DocumentCounts {
  int64_t files = 0, bytes = 0, documents = 0;
  int64_t empty_files = 0;  ///< no bytes, or a list without entries
  int64_t empty_texts = 0;  ///< documents without a character
  int64_t blank_lines = 0;  ///< of .jsonl files
  Repairs repairs;

  Json to_json() const;
};

/// A document, or a part of a long .txt file: cut after a line's end, before a character that is
/// not blank.
struct DocumentPart {
  std::string_view text;
  bool first = true, last = true;
};

using TakeDocument = std::function<void(const DocumentPart&)>;

/// Hands over the file's documents one after another. Throws IoError also when the file has changed
/// since it was listed.
void read_documents(const DocumentFile& file, bool replace, DocumentCounts& counts,
                    const TakeDocument& take);

/// Hands over each line of a .jsonl file as a value, with its number.
void read_json_lines(const std::filesystem::path& path, bool replace, DocumentCounts& counts,
                     const std::function<void(Json&, int64_t line)>& take);

/// The string under a key. Throws IoError "where: …".
std::string& text_field(Json& value, const char* key, const std::string& where);

/// A zero character is an error like a zero byte, or becomes U+FFFD and is counted.
void check_zero_characters(std::string& text, bool replace, Repairs& repairs,
                           const std::string& where);

// A large .json file, text by text: the JSON library's event reader over a TextStream, so that
// memory holds one document at a time.

/// Writes \uFFFD over escapes of surrogates that are not in pairs, from `from` on, as far as that
/// can be told: everything, or (not `ended`) up to an escape that may go on. Returns where it
/// stopped.
size_t repair_surrogates(std::string& json, size_t from, bool ended, Repairs& repairs);

/// Hands over the "text" of the file's object, or of each object in its list, with its line. Throws
/// IoError "file:line: …". Returns how many there were.
int64_t read_json_texts(const std::filesystem::path& path, bool replace, Repairs& repairs,
                        const std::function<void(std::string& text, int64_t line)>& take);

}  // namespace moonshard::data
