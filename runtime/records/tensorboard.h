// TensorBoard event files, written by hand: records of TFRecord framing (length, masked CRC-32C,
// bytes, masked CRC-32C) around the two protobuf messages that scalars and texts need. No torch, no
// protobuf library: a dozen fields are all that is used of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moonshard::records {

/// The checksum of TFRecord files: base/checksum.h's, rotated and shifted, so that a checksum
/// inside the data does not meet its own.
uint32_t masked_crc32c(std::string_view bytes);

/// The bytes of one event file. TensorBoard takes a file for one when its name contains "tfevents".
class EventFile {
 public:
  /// Opens with the version record that every reader looks for.
  explicit EventFile(double wall_time_s);

  /// A number at a step. TensorBoard keeps 32 bits of it.
  void add_scalar(const std::string& tag, int64_t step, double value, double wall_time_s);

  /// A text, which TensorBoard shows as Markdown.
  void add_text(const std::string& tag, int64_t step, const std::string& text, double wall_time_s);

  const std::string& bytes() const { return bytes_; }

 private:
  void add_record(std::string_view event);

  std::string bytes_;
};

}  // namespace moonshard::records
