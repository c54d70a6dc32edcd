// A file of documents from anybody: the first byte chooses its kind, and whether it is repaired.
// What is handed over is UTF-8 without zero characters.
#include "runtime/base/utf8.h"
#include "runtime/data/text/documents.h"
#include "tests/fuzz/fuzz_support.h"
#include "tests/fuzz/memory_disk.h"

using namespace moonshard;
using namespace moonshard::viewer;

namespace {

constexpr const char* kNames[] = {"a.txt", "a.json", "a.jsonl"};

void read(const data::DocumentFile& file, bool replace) {
  data::DocumentCounts counts;
  int64_t documents = 0;
  data::read_documents(file, replace, counts, [&](const data::DocumentPart& part) {
    documents += part.first ? 1 : 0;
    if (part.text.empty() || first_invalid_utf8(part.text)) std::abort();
    if (part.text.find('\0') != std::string_view::npos) std::abort();
  });
  if (documents != counts.documents) std::abort();
  if (!replace && counts.repairs.replaced_characters != 0) std::abort();
}

// As a user's folder is read: listed, and what was listed is opened.
void read_folder(size_t kind, std::string_view text, bool replace) {
  const std::filesystem::path path = write_input(kNames[kind], text);
  for (const data::DocumentFile& listed : data::list_documents(fuzz_folder()).files) {
    if (listed.path == path) read(listed, replace);
  }
}

data::DocumentFile file_of_kind(size_t kind) {
  data::DocumentFile file;
  file.path = file.name = kNames[kind];
  data::document_kind(file.path, file.kind);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t kind = (data[0] & 3) % 3;
  const bool replace = (data[0] & 4) != 0;
  const std::string_view text = as_text(data + 1, size - 1);
  if (wants_file(as_text(data, size))) refuse_or_read([&] { read_folder(kind, text, replace); });
  static data::DocumentFile files[] = {file_of_kind(0), file_of_kind(1), file_of_kind(2)};
  static MemoryDisk disk;
  disk.set(kNames[kind], text);
  files[kind].bytes = static_cast<int64_t>(text.size());
  const DiskScope scope(disk);
  return refuse_or_read([&] { read(files[kind], replace); });
}
