// Where token files are kept, and how they are made: once per folder, tokenizer and state of the
// files, by one process while others wait for it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/text/token_file.h"

namespace moonshard::data {

/// Takes the documents' tokens one after another while the file is written.
class TokenWriter {
 public:
  virtual ~TokenWriter() = default;
  virtual void begin_document() = 0;
  /// More tokens of the document.
  virtual void add(const std::vector<int32_t>& ids) = 0;
};

struct CacheRequest {
  std::filesystem::path data_folder;
  std::string place = "auto";  ///< auto | none | a folder
  TokenKey key;
  int64_t vocab_size = 0;
  int32_t separator = 0;
  /// Reads everything into the writer and returns the counts.
  std::function<Json(TokenWriter&)> fill;
};

struct CachedTokens {
  std::shared_ptr<const TokenFile> tokens;
  Json facts;  ///< used (found, not made now), file, reason (why it was made)
};

/// Opens the cache or makes it. "auto" is <data folder>/.moonshard; the user's cache folder where
/// that cannot be written; an unnamed temporary file where neither can.
CachedTokens open_or_make_tokens(const CacheRequest& request);

}  // namespace moonshard::data
