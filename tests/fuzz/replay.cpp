// Runs a reader over its corpus, under the sanitizers: what once broke it, or might, is tried with
// every build. Takes folders of inputs, and texts with one input per line in base64 (inputs that
// the fuzzer kept: hundreds of short ones). Each input is also tried cut and damaged.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

#include "tests/fuzz/fuzz_support.h"

namespace {

size_t num_inputs = 0, num_runs = 0;

void run(const std::string& bytes) {
  // A copy of exactly this size, so that a read beyond its end is seen.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
  ++num_runs;
}

// At `places` places at most.
void run_damaged(const std::string& bytes, size_t places) {
  run(bytes);
  const size_t step = bytes.size() / places + 1;
  for (size_t at = 0; at < bytes.size(); at += step) {
    run(bytes.substr(0, at));
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    run(damaged);
  }
  ++num_inputs;
}

std::string decoded(const std::string& line) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0, num_bits = 0;
  for (const char letter : line) {
    const size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) break;  // the filling at the end
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits & 0xff);
  }
  return bytes;
}

void run_folder(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    run_damaged(text.str(), 64);
  }
}

void run_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) run_damaged(decoded(line), 4);
}

}  // namespace

int main(int argc, char** argv) {
  moonshard::viewer::one_file_in = 1;
  for (int i = 1; i < argc; ++i) {
    const size_t before = num_inputs;
    if (std::filesystem::is_directory(argv[i])) {
      run_folder(argv[i]);
    } else {
      run_lines(argv[i]);
    }
    if (num_inputs == before) {
      std::cerr << argv[i] << ": expected inputs, got none\n";
      return 1;
    }
  }
  std::cout << num_inputs << " inputs, " << num_runs << " runs\n";
  return num_inputs > 0 ? 0 : 1;
}
