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

#include "runtime/base/json.h"
#include "runtime/data/text/text_stream.h"

namespace moonshard::data {

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

}  // namespace moonshard::data
