#include <gtest/gtest.h>

#include "runtime/records/tensorboard.h"

namespace moonshard::records {
namespace {

// The unmasked value is RFC 3720's check value.
TEST(MaskedCrc32c, IsRotatedAndOffset) {
  const uint32_t crc = 0xe3069283u;
  EXPECT_EQ(masked_crc32c("123456789"), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

TEST(EventFile, OpensWithTheVersionAndFramesEveryRecord) {
  EventFile file(1.5);
  file.add_scalar("loss", 300, -0.25, 2.5);
  const std::string& bytes = file.bytes();
  size_t at = 0;
  std::vector<std::string> events;
  while (at < bytes.size()) {
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length * 256 + static_cast<uint8_t>(bytes[at + i]);
    ASSERT_LE(at + 16 + length, bytes.size());
    events.push_back(bytes.substr(at + 12, length));
    at += 16 + length;
  }
  ASSERT_EQ(events.size(), 2u);
  // wall_time = 1.5 as a double, file_version as field 3
  const std::string version(
      "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d"
      "brain.Event:2",
      24);
  EXPECT_EQ(events[0], version);
  // wall_time 2.5, step 300 as a varint, summary { value { tag "loss", simple_value -0.25f } }
  const std::string scalar(
      "\x09\x00\x00\x00\x00\x00\x00\x04\x40\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04"
      "loss\x15\x00\x00\x80\xbe",
      27);
  EXPECT_EQ(events[1], scalar);
}

}  // namespace
}  // namespace moonshard::records
