#include "runtime/records/tensorboard.h"

#include <cstring>
#include <span>

#include "runtime/base/checksum.h"

namespace moonshard::records {
namespace {

template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

template <class Bits, class Number>
Bits bits_of(Number number) {
  static_assert(sizeof(Bits) == sizeof(Number));
  Bits bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

// The four shapes of a protobuf field; a field's number and shape make its key.
std::string varint(uint64_t value) {
  std::string bytes;
  while (value >= 0x80) {
    bytes.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string number_field(int field, int64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(static_cast<uint64_t>(value));
}
std::string double_field(int field, double value) {
  return varint((static_cast<uint64_t>(field) << 3) | 1) + little_endian(bits_of<uint64_t>(value));
}
std::string float_field(int field, float value) {
  return varint((static_cast<uint64_t>(field) << 3) | 5) + little_endian(bits_of<uint32_t>(value));
}
std::string bytes_field(int field, std::string_view bytes) {
  return varint((static_cast<uint64_t>(field) << 3) | 2) + varint(bytes.size()) +
         std::string(bytes);
}

// Event { wall_time = 1; step = 2; file_version = 3; summary = 5 }, Summary { repeated value = 1 }.
std::string event_head(double wall_time_s, int64_t step) {
  return double_field(1, wall_time_s) + (step != 0 ? number_field(2, step) : "");
}
std::string summary_event(double wall_time_s, int64_t step, std::string_view value) {
  return event_head(wall_time_s, step) + bytes_field(5, bytes_field(1, value));
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t value = crc32c(std::as_bytes(std::span(bytes)));
  return ((value >> 15) | (value << 17)) + 0xa282ead8u;
}

EventFile::EventFile(double wall_time_s) {
  add_record(event_head(wall_time_s, 0) + bytes_field(3, "brain.Event:2"));
}

// Value { tag = 1; simple_value = 2 }
void EventFile::add_scalar(const std::string& tag, int64_t step, double value, double wall_time_s) {
  add_record(summary_event(wall_time_s, step,
                           bytes_field(1, tag) + float_field(2, static_cast<float>(value))));
}

// Value { tag = 1; tensor = 8; metadata = 9 }: a tensor of one string, marked for the text plugin.
void EventFile::add_text(const std::string& tag, int64_t step, const std::string& text,
                         double wall_time_s) {
  constexpr int64_t kStringType = 7;
  const std::string shape = bytes_field(2, number_field(1, 1));  // one dimension of size 1
  const std::string tensor =
      number_field(1, kStringType) + bytes_field(2, shape) + bytes_field(8, text);
  const std::string metadata = bytes_field(1, bytes_field(1, "text"));
  add_record(summary_event(
      wall_time_s, step, bytes_field(1, tag) + bytes_field(8, tensor) + bytes_field(9, metadata)));
}

void EventFile::add_record(std::string_view event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  bytes_ += length + little_endian(masked_crc32c(length));
  bytes_ += event;
  bytes_ += little_endian(masked_crc32c(event));
}

}  // namespace moonshard::records
