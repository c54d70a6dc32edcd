// Checkpoints that were changed after the save: every one is refused by the name of the file, and
// the trainer that was asked goes on as if nobody had. Several ranks are checkpoint_spec.lua.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <cstring>
#include <functional>
#include <random>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_index.h"
#include "runtime/weights/safetensors.h"
#include "tests/runtime/checkpoint/checkpoint_support.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kRankFile = "rank00000.safetensors";
constexpr const char* kKey = "a key of more than sixteen bytes\n";

// The environment variable for as long as it lives.
class KeyFile {
 public:
  explicit KeyFile(const fs::path& path) { ::setenv(kKeyVariable, path.c_str(), 1); }
  ~KeyFile() { ::unsetenv(kKeyVariable); }
};

class Integrity : public testing::Test {
 protected:
  Integrity() : saved_(llama_setting()), run_(llama_setting()) {
    saved_.steps(2);
    checkpoint_ = save(saved_.trainer, folder_.path());
    run_.steps(1);
    before_ = run_.weights();
  }
  // Refused with these words; nothing has changed.
  void expect_refusal(const std::string& file, const std::string& text = "") {
    EXPECT_THAT([&] { resume(run_.trainer, folder_.path()); },
                ThrowsMessage<IoError>(AllOf(HasSubstr("/" + file + ":"), HasSubstr(text))));
    EXPECT_TRUE(same(run_.weights(), before_)) << file << " " << text;
    EXPECT_EQ(run_.trainer.privacy_steps(), 1) << file << " " << text;
  }
  // It steps on from where it was, and a good checkpoint still loads.
  void expect_usable() {
    EXPECT_EQ(run_.trainer.step().step, 2);
    Training straight(llama_setting());
    straight.steps(2);
    EXPECT_TRUE(same(run_.weights(), straight.weights()));
  }
  void with_changed(const std::string& file, const std::function<void(std::string&)>& change,
                    const std::string& expected = "") {
    const std::string good = text_of(checkpoint_ / file);
    std::string text = good;
    change(text);
    ASSERT_NE(text, good);
    write_text(checkpoint_ / file, text);
    expect_refusal(file, expected);
    write_text(checkpoint_ / file, good);
  }
  static void flip(std::string& text, size_t place) {
    text[place] = static_cast<char>(text[place] ^ (1 << place % 7));
  }
  static void replace(std::string& text, const std::string& from, const std::string& to) {
    const size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
  }

  // As a writer of such files would, with its own checksums.
  static void rewrite(const fs::path& path, const std::function<void(at::Tensor&)>& change) {
    const auto file = weights::SafetensorsFile::open(path);
    weights::NamedTensors tensors;
    for (const auto& entry : file.entries())
      tensors.emplace_back(entry.name, file.read(entry.name));
    change(tensors[0].second);
    weights::write_safetensors(path, tensors, file.metadata());
  }

  TemporaryFolder folder_;
  Training saved_, run_;
  fs::path checkpoint_;
  std::vector<at::Tensor> before_;
};

TEST_F(Integrity, OneFlippedBitAnywhereIsFound) {
  const size_t rank_bytes = text_of(checkpoint_ / kRankFile).size();
  for (size_t place = 0; place < rank_bytes; place += rank_bytes / 23)
    with_changed(kRankFile, [&](std::string& text) { flip(text, place); });
  const auto flip_last = [](std::string& text) { flip(text, text.size() - 1); };
  with_changed(kRankFile, flip_last,
               "tensor 'optimizer/mean_square/model.norm.weight': expected CRC-32C");
  const size_t index_bytes = text_of(checkpoint_ / kIndexName).size();
  for (size_t place = 0; place < index_bytes; place += 31)
    with_changed(kIndexName, [&](std::string& text) { flip(text, place); });
  with_changed(kIndexName, flip_last);
  EXPECT_EQ(resume(saved_.trainer, folder_.path()), 2);
  expect_usable();
}

TEST_F(Integrity, EditsOfTheIndexAreFound) {
  const auto expect = [&](const std::string& from, const std::string& to) {
    with_changed(
        kIndexName, [&](std::string& text) { replace(text, from, to); }, "expected SHA-256");
  };
  expect("\"steps\":2,\"noise_multiplier\"", "\"steps\":1,\"noise_multiplier\"");
  expect("\"noise_multiplier\":1.0", "\"noise_multiplier\":4.0");
  expect("\"history\":[", "\"history\":[{\"q\":0.5,\"sigma\":1.0,\"steps\":2}");
  expect("\"why_no_epsilon\":\"", "\"why_no_epsilon\":\"\",\"was\":\"");
  expect("\"noised_steps\":2", "\"noised_steps\":3");
  expect("\"secret_steps\":0", "\"secret_steps\":2");
  expect("\"step\": 2", "\"step\": 3");
  expect("\"seed\": 11", "\"seed\": 12");
  expect("\"bytes\":", "\"bytes\": 1");
  expect("\"schema_version\": 3", "\"schema_version\": 1");
  expect("\"schema_version\": 3", "\"schema_version\":  3");  // not even a space
  // The seal itself.
  const std::string seal = "\n\"sha256\": \"";
  const auto cut_from = [&](std::string& text) { text.resize(text.find(seal)); };
  with_changed(
      kIndexName,
      [&](std::string& text) {
        cut_from(text);
        text.back() = '}';
      },
      "expected its checksum at the end, got none");
  with_changed(
      kIndexName, [&](std::string& text) { replace(text, "\"}\n", "\",\n\"step_\": 1}\n"); },
      "expected nothing after its seal");
  with_changed(
      kIndexName, [&](std::string& text) { replace(text, seal, seal + "0"); }, "expected SHA-256");
  expect_usable();
}

TEST_F(Integrity, FilesThatAreGoneCutLengthenedOrOfAnotherCheckpointAreFound) {
  const fs::path file = checkpoint_ / kRankFile;
  const std::string good = text_of(file);
  fs::remove(file);
  expect_refusal(kRankFile, "cannot read: No such file");
  for (const size_t length : {good.size() - 1, good.size() / 2, size_t{3}, size_t{0}}) {
    write_text(file, good.substr(0, length));
    expect_refusal(kRankFile, "cut short");
  }
  write_text(file, good + "x");
  expect_refusal(kRankFile);

  // One step more of the same run: the same names, shapes and size.
  const TemporaryFolder elsewhere;
  saved_.steps(1);
  const fs::path other = save(saved_.trainer, elsewhere.path());
  std::string swapped = text_of(other / kRankFile);
  ASSERT_EQ(swapped.size(), good.size());
  write_text(file, swapped);
  expect_refusal(kRankFile, "the folder has files of two checkpoints");
  // With the right name of the checkpoint inside, too.
  replace(swapped, read_index(other).id, read_index(checkpoint_).id);
  write_text(file, swapped);
  expect_refusal(kRankFile, "header: expected CRC-32C");
  // And by somebody who writes checksums that fit.
  write_text(file, good);
  rewrite(file, [](at::Tensor& values) { values.add_(1); });
  expect_refusal(kRankFile, "expected SHA-256");
  write_text(file, good);
  EXPECT_EQ(resume(saved_.trainer, folder_.path()), 2);
  expect_usable();
}

TEST_F(Integrity, EveryFlippedBitIsNamedByItsFileAndTensor) {
  // MOONSHARD_BIT_FLIPS=10000 takes a minute.
  const char* asked = std::getenv("MOONSHARD_BIT_FLIPS");
  const int flips = asked != nullptr ? std::atoi(asked) : 200;
  const std::string good = text_of(checkpoint_ / kRankFile);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, good.data(), sizeof header_bytes);
  const auto file = weights::SafetensorsFile::open(checkpoint_ / kRankFile);
  std::mt19937_64 random(7);
  for (int i = 0; i < flips; ++i) {
    const size_t place = random() % good.size();
    std::string text = good;
    text[place] = static_cast<char>(text[place] ^ (1 << random() % 8));
    write_text(checkpoint_ / kRankFile, text);
    std::string expected;
    if (place >= 8 + header_bytes) {
      const auto offset = static_cast<int64_t>(place - 8 - header_bytes);
      for (const auto& entry : file.entries())
        if (entry.begin <= offset && offset < entry.end)
          expected = "tensor '" + entry.name + "': expected CRC-32C";
      ASSERT_FALSE(expected.empty());
    }
    expect_refusal(kRankFile, expected);
  }
  write_text(checkpoint_ / kRankFile, good);
  EXPECT_EQ(resume(saved_.trainer, folder_.path()), 2);
  expect_usable();
}

TEST_F(Integrity, TheSumsAreWhatCommandsOfTheSystemCompute) {
  const std::string rank = text_of(checkpoint_ / kRankFile);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, rank.data(), sizeof header_bytes);
  const std::string command = "cd '" + checkpoint_.string() + "' && command -v sha256sum >sum && " +
                              "head -n -1 index.json | sha256sum >sum && head -c " +
                              std::to_string(8 + header_bytes) +
                              " rank00000.safetensors | sha256sum >>sum";
  if (::system(command.c_str()) != 0) GTEST_SKIP() << "no sha256sum on this machine";
  const std::string sums = text_of(checkpoint_ / "sum");
  const Json index = read_json_file(checkpoint_ / kIndexName);
  EXPECT_THAT(sums, HasSubstr(index["sha256"].get<std::string>()));
  EXPECT_THAT(sums, HasSubstr(index["files"][kRankFile]["header_sha256"].get<std::string>()));
  EXPECT_EQ(index["files"][kRankFile]["bytes"], rank.size());
}

TEST_F(Integrity, IndexesFormAChain) {
  EXPECT_EQ(read_index(checkpoint_).previous, "");
  saved_.steps(1);
  const fs::path second = save(saved_.trainer, folder_.path());
  EXPECT_EQ(read_index(second).previous, read_index(checkpoint_).seal);
  resume(run_.trainer, checkpoint_);
  const TemporaryFolder elsewhere;
  EXPECT_EQ(read_index(save(run_.trainer, elsewhere.path())).previous,
            read_index(checkpoint_).seal);
}

// ---- under a key -------------------------------------------------------------------------------

TEST_F(Integrity, UnderAKeyOnlyItsHolderCanWriteAnIndex) {
  const TemporaryFolder keys;
  const fs::path right = keys.path() / "right", wrong = keys.path() / "wrong";
  write_text(right, kKey);
  write_text(wrong, "another key of more than 16 bytes");
  {
    const KeyFile key(right);
    expect_refusal(kIndexName, "got none; it was saved without a key");
    checkpoint_ = save(saved_.trainer, folder_.path());
    EXPECT_EQ(resume(saved_.trainer, folder_.path()), 2);
    for (const std::string& name : names_in(checkpoint_))
      EXPECT_EQ(text_of(checkpoint_ / name).find(kKey), std::string::npos) << name;
    // A seal of somebody who knows the format, but not the key.
    const std::string good = text_of(checkpoint_ / kIndexName);
    Json index = read_json_file(checkpoint_ / kIndexName);
    index["privacy"]["steps"] = 1;
    for (const std::string& forged :
         {resealed(index), resealed(index, "a guess"), of_version_1(index)}) {
      write_text(checkpoint_ / kIndexName, forged);
      expect_refusal(kIndexName, "expected an HMAC under the key");
    }
    write_text(checkpoint_ / kIndexName, good);
    EXPECT_EQ(resume(saved_.trainer, folder_.path()), 2);
    const size_t last_digit = good.size() - 4;
    with_changed(
        kIndexName,
        [&](std::string& text) { text[last_digit] = text[last_digit] == '0' ? '1' : '0'; },
        "expected an HMAC under the key");
  }
  {
    const KeyFile key(wrong);
    expect_refusal(kIndexName, "expected an HMAC under the key that MOONSHARD_CHECKPOINT_KEY_FILE");
  }
  expect_usable();
}

TEST_F(Integrity, UnderAKeyDataThatMeetsItsChecksumOnPurposeIsFound) {
  // CRC-32C is linear: its polynomial, anywhere in the data, leaves it as it was.
  const auto forge = [](std::string& text) {
    const uint64_t polynomial = 1 | uint64_t{0x82F63B78} << 1;
    for (size_t i = 0; i < 5; ++i) {
      char& byte = text[text.size() - 5 + i];
      byte = static_cast<char>(byte ^ static_cast<char>(polynomial >> 8 * i));
    }
  };
  const TemporaryFolder keys;
  write_text(keys.path() / "key", kKey);
  const KeyFile key(keys.path() / "key");
  checkpoint_ = save(saved_.trainer, folder_.path());
  with_changed(kRankFile, forge, "of its data");
  expect_usable();
}

TEST_F(Integrity, AKeyThatCannotBeReadOrIsTooShortIsRefusedAndNothingIsWritten) {
  const TemporaryFolder keys;
  write_text(keys.path() / "short", "fifteen bytes..");
  const auto names = names_in(folder_.path());
  const auto expect = [&](const fs::path& path, const std::string& text) {
    const KeyFile key(path);
    for (const bool saves : {true, false}) {
      EXPECT_THAT(
          [&] {
            if (saves)
              save(run_.trainer, folder_.path());
            else
              resume(run_.trainer, folder_.path());
          },
          ThrowsMessage<Error>(HasSubstr(text)));
    }
    EXPECT_EQ(names_in(folder_.path()), names);
  };
  expect(keys.path() / "short", "expected a key of 16 to 65536 bytes, got 15");
  expect(keys.path() / "none", "none: cannot read: No such file");
  expect("", "expected the path of a file, got an empty text");
  expect_usable();
}

}  // namespace
}  // namespace moonshard::checkpoint
