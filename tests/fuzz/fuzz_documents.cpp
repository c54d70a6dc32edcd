// A file of documents from anybody: the first byte chooses its kind, and whether it is repaired.
// What is handed over is UTF-8 without zero characters.
#include "runtime/base/utf8.h"
#include "runtime/data/text/documents.h"
#include "tests/fuzz/fuzz_support.h"

using namespace moonshard;
using namespace moonshard::viewer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr const char* kNames[] = {"a.txt", "a.json", "a.jsonl"};
  const bool replace = (data[0] & 4) != 0;
  data::DocumentFile file;
  file.path = write_input(kNames[(data[0] & 3) % 3], as_text(data + 1, size - 1));
  data::document_kind(file.path, file.kind);
  return refuse_or_read([&] {
    for (const data::DocumentFile& listed : data::list_documents(fuzz_folder()).files) {
      if (listed.path != file.path) continue;
      data::DocumentCounts counts;
      int64_t documents = 0;
      data::read_documents(listed, replace, counts, [&](const data::DocumentPart& part) {
        documents += part.first ? 1 : 0;
        if (part.text.empty() || first_invalid_utf8(part.text)) std::abort();
        if (part.text.find('\0') != std::string_view::npos) std::abort();
      });
      if (documents != counts.documents) std::abort();
      if (!replace && counts.repairs.replaced_characters != 0) std::abort();
    }
  });
}
