// Runs a reader over every file of its corpus, under the sanitizers: what once broke it, or might,
// is tried with every build. Takes the corpus folder; each file is also tried cut and damaged.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

#include "tests/fuzz/fuzz_support.h"

namespace {

void run(const std::string& bytes) {
  // A copy of exactly this size, so that a read beyond its end is seen.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  size_t files = 0, runs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::ostringstream text;
      text << in.rdbuf();
      const std::string bytes = text.str();
      run(bytes);
      const size_t step = bytes.size() / 64 + 1;
      for (size_t at = 0; at < bytes.size(); at += step, runs += 2) {
        run(bytes.substr(0, at));
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
        run(damaged);
      }
      ++files, ++runs;
    }
  }
  std::cout << files << " files, " << runs << " runs\n";
  return files > 0 ? 0 : 1;  // an empty corpus is a mistake
}
