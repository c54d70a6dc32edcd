// Boards without a network: in memory for ranks that are threads, in a folder for ranks that are
// processes.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/comm/pulse.h"

namespace moonshard {

class MemoryBoard : public comm::Board {
 public:
  void post(const std::string& key, const std::string& text) override {
    check();
    const std::lock_guard lock(mutex_);
    texts_[key] = text;
  }
  std::optional<std::string> read(const std::string& key) override {
    check();
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(key);
    return found != texts_.end() ? std::optional(found->second) : std::nullopt;
  }
  std::string host() const override { return "rank 7"; }

  std::atomic<bool> is_gone{false};    ///< every request fails
  std::atomic<bool> is_frozen{false};  ///< no request returns

 private:
  void check() const {
    while (is_frozen) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (is_gone) throw IoError("board: connection closed");
  }
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
};

class FolderBoard : public comm::Board {
 public:
  explicit FolderBoard(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void post(const std::string& key, const std::string& text) override {
    const std::filesystem::path file = path_of(key);
    const std::filesystem::path aside = file.string() + fmt::format(".{}.new", ::getpid());
    {
      std::ofstream out(aside, std::ios::binary);
      out << text;
      if (!out.flush()) throw IoError(aside.string() + ": cannot write");
    }
    std::filesystem::rename(aside, file);
  }
  std::optional<std::string> read(const std::string& key) override {
    std::ifstream in(path_of(key), std::ios::binary);
    if (!in) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

 private:
  std::filesystem::path path_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '_');
    return folder_ / key;
  }
  std::filesystem::path folder_;
};

}  // namespace moonshard
