// Checkpoints that were changed after the save: every one is refused by the name of the file, and
// the trainer that was asked goes on as if nobody had. Several ranks are checkpoint_spec.lua.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <functional>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_index.h"
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
  with_changed(kRankFile, flip_last, "expected SHA-256");
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
  expect("\"schema_version\": 2", "\"schema_version\": 1");
  expect("\"schema_version\": 2", "\"schema_version\":  2");  // not even a space
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
  expect_refusal(kRankFile, "expected SHA-256");
  write_text(file, good);
  EXPECT_EQ(resume(saved_.trainer, folder_.path()), 2);
  expect_usable();
}

TEST_F(Integrity, TheSealIsWhatACommandOfTheSystemComputes) {
  const std::string text = text_of(checkpoint_ / kIndexName);
  const std::string command =
      "cd '" + checkpoint_.string() + "' && command -v sha256sum >sum && " +
      "head -n -1 index.json | sha256sum >sum && sha256sum rank*.safetensors >>sum";
  if (::system(command.c_str()) != 0) GTEST_SKIP() << "no sha256sum on this machine";
  const std::string sums = text_of(checkpoint_ / "sum");
  const Json index = read_json_file(checkpoint_ / kIndexName);
  EXPECT_THAT(sums, HasSubstr(index["sha256"].get<std::string>()));
  EXPECT_THAT(sums, HasSubstr(index["files"][kRankFile]["sha256"].get<std::string>()));
  EXPECT_EQ(index["files"][kRankFile]["bytes"], fs::file_size(checkpoint_ / kRankFile));
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
