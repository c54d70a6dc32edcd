// Checksums inside files of tensors, and of the small files beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/models/registry.h"
#include "runtime/weights/block_sums.h"
#include "runtime/weights/folder_sums.h"
#include "runtime/weights/load_model.h"
#include "runtime/weights/safetensors.h"
#include "tests/runtime/weights/raw_safetensors.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::weights {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string bytes_of(const fs::path& path) {
  return read_text_file(path, 64 << 20);
}

void put_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void flip_bit(const fs::path& path, size_t place, int bit = 2) {
  std::string bytes = bytes_of(path);
  bytes[place] = static_cast<char>(bytes[place] ^ (1 << bit));
  put_bytes(path, bytes);
}

TEST(BlockSums, OtherReadersSeeAnOrdinaryFile) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  write_safetensors(path, {{"w", at::ones({3})}}, {{"format", "pt"}, {"note", "mine"}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.has_sums());
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"note", "mine"}})) << "not shown";
  const std::string bytes = bytes_of(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const Json header = parse_json(bytes.substr(8, length), "header");
  EXPECT_TRUE(header["__metadata__"][BlockSums::kKey].is_string());
  EXPECT_EQ(length % 8, 0u);
  // Written again from what was read, it has new sums and not the old ones' text.
  write_safetensors(path, {{"w", at::zeros({3})}}, file.metadata());
  EXPECT_EQ(SafetensorsFile::open(path).read("w").sum().item<double>(), 0);
}

TEST(BlockSums, EveryRangeOfALargeTensorIsReadAndOnlyItsBlocksAreChecked) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  const int64_t block = BlockSums::kBlockBytes / 4, count = 3 * block + 77;
  const at::Tensor values = at::arange(count, at::kFloat);
  write_safetensors(path, {{"empty", at::ones({0})}, {"w", values}, {"last", at::ones({5})}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_TRUE(at::equal(file.read("w"), values));
  std::mt19937_64 random(3);
  for (int i = 0; i < 60; ++i) {
    const auto first = static_cast<int64_t>(random() % static_cast<uint64_t>(count));
    const auto length = static_cast<int64_t>(random() % static_cast<uint64_t>(count - first + 1));
    const at::Tensor target = at::empty({length}, i % 2 == 0 ? at::kFloat : at::kDouble);
    file.read_range("w", first, target);
    ASSERT_TRUE(at::equal(target, values.narrow(0, first, length).to(target.scalar_type())));
  }
  // In the second block.
  const size_t data = bytes_of(path).size() - 4 * static_cast<size_t>(count + 5);
  flip_bit(path, data + static_cast<size_t>(BlockSums::kBlockBytes) + 12);
  const SafetensorsFile damaged = SafetensorsFile::open(path);
  const at::Tensor row = at::empty({block}, at::kFloat);
  EXPECT_NO_THROW(damaged.read_range("w", 0, row));
  EXPECT_NO_THROW(damaged.read_range("w", 2 * block, row));
  const auto complaint = ThrowsMessage<IoError>(HasSubstr("tensor 'w': expected CRC-32C"));
  EXPECT_THAT([&] { damaged.read_range("w", block - 1, row); }, complaint);
  EXPECT_THAT([&] { damaged.read_range("w", 2 * block - 1, row.narrow(0, 0, 1)); }, complaint);
  EXPECT_THAT([&] { damaged.check_range("w", block, 1); }, complaint);
  EXPECT_THAT([&] { damaged.read("w"); },
              ThrowsMessage<IoError>(HasSubstr("of its bytes 4194304 to 8388608")));
  EXPECT_NO_THROW(damaged.read("last"));
}

TEST(BlockSums, EveryBitOfTheHeaderCounts) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  write_safetensors(path, {{"w", at::ones({3})}, {"b", at::ones({2})}});
  const std::string good = bytes_of(path);
  uint64_t length = 0;
  std::memcpy(&length, good.data(), sizeof length);
  for (size_t place = 0; place < 8 + length; ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      flip_bit(path, place, bit);
      EXPECT_THROW(SafetensorsFile::open(path), IoError) << place << " " << bit;
      put_bytes(path, good);
    }
  }
}

TEST(BlockSums, FilesOfOthersLoadWithout) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  write_safetensors(path, {{"w", at::ones({3})}}, {});
  std::string bytes = bytes_of(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const Json header = parse_json(bytes.substr(8, length), "header");
  const std::string plain = Json{{"w", header["w"]}}.dump();
  const uint64_t plain_length = plain.size();
  std::string made(8, '\0');
  std::memcpy(made.data(), &plain_length, sizeof plain_length);
  put_bytes(path, made + plain + bytes.substr(8 + length));
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_FALSE(file.has_sums());
  EXPECT_EQ(file.read("w").sum().item<double>(), 3);
  EXPECT_NO_THROW(file.check_range("w", 0, 3));
}

// ---- a folder of weights ----------------------------------------------------------------------

TEST(FolderSums, EveryFlippedBitOfASavedModelIsNamed) {
  const TemporaryFolder folder;
  models::ModelOptions options;
  options.model = "llama3.2-tiny";
  options.device = "cpu";
  options.hidden_dim = 24;
  options.intermediate_dim = 38;
  options.vocab_size = 29;
  options.head_dim = 6;
  options.seed = 3;
  const auto model = models::make_model(options);
  const auto shards = save_model(*model, folder.path(), 8000);
  ASSERT_GT(shards.size(), 2u);
  const auto load = [&] {
    models::ModelOptions asked;
    asked.model = folder.path().string();
    asked.device = "cpu";
    asked.seed = 1;
    weights::make_model(asked);
  };
  EXPECT_NO_THROW(load());
  std::mt19937_64 random(5);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder.path())) files.push_back(entry.path());
  ASSERT_EQ(files.size(), shards.size() + 3);  // config, index, checksums
  for (int i = 0; i < 300; ++i) {
    const fs::path& path = files[random() % files.size()];
    const std::string good = bytes_of(path);
    flip_bit(path, random() % good.size(), static_cast<int>(random() % 8));
    EXPECT_THAT(load, ThrowsMessage<IoError>(HasSubstr(path.string() + ":")));
    put_bytes(path, good);
  }
  // An edit on purpose: the way out is in the message.
  put_bytes(folder.path() / "config.json", bytes_of(folder.path() / "config.json") + " ");
  EXPECT_THAT(load, ThrowsMessage<IoError>(HasSubstr("remove checksums.txt")));
  fs::remove(folder.path() / kFolderSumsName);
  EXPECT_NO_THROW(load());
}

}  // namespace
}  // namespace moonshard::weights
