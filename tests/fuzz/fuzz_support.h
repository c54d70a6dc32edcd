// What the fuzz targets share. Readers get the input as bytes in memory, because a file for every
// run costs more than the parser; one input in a thousand goes through a file as well. A reader may
// refuse with an IoError and with nothing else.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace moonshard::viewer {

/// A folder of this process in /dev/shm (or the temporary folder), made once.
inline const std::filesystem::path& fuzz_folder() {
  static const std::filesystem::path folder = [] {
    std::error_code error;
    const bool shared = std::filesystem::is_directory("/dev/shm", error);
    std::string name =
        (shared ? std::string("/dev/shm") : std::filesystem::temp_directory_path().string()) +
        "/moonshard_fuzz_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    static const std::filesystem::path made = name;
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(made, ignored);
    });
    return made;
  }();
  return folder;
}

inline std::filesystem::path write_input(const std::filesystem::path& name,
                                         std::string_view bytes) {
  const std::filesystem::path path = fuzz_folder() / name;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) std::abort();
  if (!bytes.empty()) std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
  return path;
}

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// One input in so many is also read from a file; 1 (of the replay): every one.
inline uint64_t one_file_in = 1024;

/// Whether this input is. Decided by its bytes, so that what is found can be found again.
inline bool wants_file(std::string_view bytes) {
  uint64_t hash = bytes.size();
  for (const char byte : bytes) hash = hash * 0x9E3779B97F4A7C15ull + static_cast<uint8_t>(byte);
  return (hash >> 32) % one_file_in == 0;
}

/// Runs a reader. Anything but an IoError escapes and ends the program.
template <typename Read>
int refuse_or_read(const Read& read) {
  try {
    read();
  } catch (const IoError&) {
  }
  return 0;
}

}  // namespace moonshard::viewer
