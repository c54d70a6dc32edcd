// The file `spent` beside the checkpoints of a durable run: the account with the step in progress,
// written before that step begins. Steps with secret noise that a crash takes are done again with
// other noise, and stay charged.
//
// A kill takes nothing from the system's memory: the account has every step that was begun. It is
// synced once a second at most. A power cut takes the steps since then, weights and all: nobody has
// seen them but on a screen. What it leaves is one whole account, the last that was synced or a
// newer one: of the file's three slots the synced one is never written over, and the others are
// written in turn, so that a kill in the middle of one leaves the one before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/accountant/epsilon.h"
#include "runtime/base/files.h"

namespace moonshard::checkpoint {

class SpentFile {
 public:
  /// Opens it, or makes it. Throws IoError.
  explicit SpentFile(const std::filesystem::path& path);

  /// The history of the newest whole slot, as JSON; an empty list when there is no file, or none
  /// was written yet. Throws IoError when there are slots, and none is whole.
  static std::string newest(const std::filesystem::path& path);

  /// `now_s`: seconds of a clock that does not jump. Throws IoError.
  void write(const accountant::History& history, double now_s);

 private:
  void sync();

  std::filesystem::path path_;
  Descriptor file_;
  uint64_t number_ = 0;      ///< of the newest account
  int64_t newest_slot_ = 0;  ///< where it is
  int64_t synced_slot_ = 0;  ///< of the newest that is known to be on the disk
  double synced_s_ = 0;
  bool is_synced_ = false;  ///< once
};

}  // namespace moonshard::checkpoint
