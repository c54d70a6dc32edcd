// Datasets over text: samples, labels, masks, facts; and the file of tokens under damage, change
// and several processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <span>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"
#include "runtime/data/classification_dataset.h"
#include "runtime/data/text/token_file.h"
#include "runtime/data/text_dataset.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::data {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<int64_t> row(const at::Tensor& tensor, int64_t i) {
  const at::Tensor numbers = tensor[i].to(at::kLong).contiguous();
  const auto* first = numbers.const_data_ptr<int64_t>();
  return {first, first + numbers.numel()};
}

std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Datasets : public testing::Test {
 protected:
  Datasets() {
    options_.folder = (folder_.path() / "data").string();
    fs::create_directories(options_.folder);
    options_.max_length = 4;
    ::setenv("XDG_CACHE_HOME", (folder_.path() / "cache").c_str(), 1);
  }
  ~Datasets() override { ::unsetenv("XDG_CACHE_HOME"); }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(fs::path(options_.folder) / name, std::ios::binary) << bytes;
  }
  /// The only cache in the data folder.
  fs::path cache_file() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(fs::path(options_.folder) / ".moonshard")) {
      if (entry.path().extension() == ".tokens") found.push_back(entry.path());
    }
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? fs::path() : found[0];
  }
  std::string why_made() const {
    return TextDataset(options_).facts()["cache"].value("reason", std::string("used"));
  }

  TemporaryFolder folder_;
  TextOptions options_;
};

TEST_F(Datasets, PackedSamplesAreStretchesOfAllDocumentsWithTheEndBetween) {
  write("a.txt", "abc");
  write("b.jsonl", "{\"text\": \"defg\"}\n{\"text\": \"\"}\n{\"text\": \"hi\"}\n");
  const TextDataset data(options_);  // abc 0 defg 0 hi: 11 tokens
  ASSERT_EQ(data.size(), 2);
  const Batch batch = data.batch({1, 0, 1});
  EXPECT_THAT(row(batch.input_ids, 1), ElementsAre('a', 'b', 'c', 0));
  EXPECT_THAT(row(batch.input_ids, 0), ElementsAre('d', 'e', 'f', 'g'));
  EXPECT_THAT(row(batch.input_ids, 2), ElementsAre('d', 'e', 'f', 'g'));
  EXPECT_THAT(row(batch.labels, 1), ElementsAre('b', 'c', 0, -100));
  EXPECT_TRUE(batch.attention_mask.all().item<bool>());
  const Json facts = data.facts();
  EXPECT_EQ(facts["tokens"], 11);
  EXPECT_EQ(facts["tokens_dropped"], 3);
  EXPECT_EQ(facts["documents"], 3);
  EXPECT_EQ(facts["samples"], 2);
  EXPECT_EQ(facts["skipped"]["empty_texts"], 1);
  EXPECT_THAT(facts["privacy_unit"].get<std::string>(), HasSubstr("neither a document"));
  EXPECT_EQ(data.batch({}).input_ids.sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(data.batch({}).labels.sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_THROW(data.batch({2}), UsageError);
  EXPECT_THROW(data.batch({-1}), UsageError);
}

TEST_F(Datasets, PaddedSamplesAreDocuments) {
  write("a.jsonl",
        "{\"text\": \"ab\"}\n{\"text\": \"cdefgh\"}\n{\"text\": \"x\"}\n{\"text\": \"ijk\"}\n");
  options_.packing = "padded";
  const TextDataset data(options_);
  ASSERT_EQ(data.size(), 3);
  const Batch batch = data.batch({0, 1, 2});
  EXPECT_THAT(row(batch.input_ids, 0), ElementsAre('a', 'b', 0, 0));
  EXPECT_THAT(row(batch.attention_mask, 0), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(row(batch.labels, 0), ElementsAre('b', -100, -100, -100));
  EXPECT_THAT(row(batch.input_ids, 1), ElementsAre('c', 'd', 'e', 'f'));
  EXPECT_THAT(row(batch.labels, 1), ElementsAre('d', 'e', 'f', -100));
  EXPECT_THAT(row(batch.labels, 2), ElementsAre('j', 'k', -100, -100));
  EXPECT_EQ(data.facts()["documents_truncated"], 1);
  EXPECT_EQ(data.facts()["tokens_dropped"], 2);
  EXPECT_EQ(data.facts()["skipped"]["documents_of_one_token"], 1);
  EXPECT_EQ(data.facts()["privacy_unit"], "a document");
}

TEST_F(Datasets, ATokenizersOwnTokensStandAroundDocuments) {
  options_.tokenizer = std::string(MOONSHARD_SOURCE_DIR) + "/tests/data/tokenizers/llama3.json";
  options_.max_length = 2;
  write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b<|eot_id|>\"}\n");
  const TextDataset data(options_);
  const Tokenizer& tokenizer = data.tokenizer();
  const auto id = [&](const char* token) { return static_cast<int64_t>(*tokenizer.find(token)); };
  ASSERT_EQ(data.size(), 3);  // begin a end begin b eot
  const Batch batch = data.batch({0, 1, 2});
  EXPECT_THAT(row(batch.input_ids, 0), ElementsAre(id("<|begin_of_text|>"), id("a")));
  EXPECT_THAT(row(batch.input_ids, 1), ElementsAre(id("<|end_of_text|>"), id("<|begin_of_text|>")));
  EXPECT_THAT(row(batch.input_ids, 2), ElementsAre(id("b"), id("<|eot_id|>")));
  options_.end_of_text = "<|eot_id|>";
  EXPECT_THAT(row(TextDataset(options_).batch({1}).input_ids, 0)[0], id("<|eot_id|>"));
  options_.end_of_text = "<|none|>";
  EXPECT_THROW(TextDataset{options_}, UsageError);
}

TEST_F(Datasets, LongTextInPartsHasTheTokensOfTheWhole) {
  options_.tokenizer = std::string(MOONSHARD_SOURCE_DIR) + "/tests/data/tokenizers/llama3.json";
  options_.max_length = 1000;
  std::string text;
  for (int i = 0; text.size() < (17u << 20); ++i)
    text += "Line " + std::to_string(i) + " isn't long.\r\n\n \tx;\n";
  write("a.txt", text);
  const TextDataset data(options_);
  const std::vector<int32_t> whole = encode_whole(data.tokenizer(), text);
  ASSERT_EQ(data.facts()["tokens"], whole.size());
  for (int64_t sample = 0; sample < data.size(); sample += 7) {
    const std::vector<int64_t> ids = row(data.batch({sample}).input_ids, 0);
    ASSERT_TRUE(std::equal(ids.begin(), ids.end(), whole.begin() + sample * 1000)) << sample;
  }
}

TEST_F(Datasets, WrongOptionsAndModelsAreErrorsBeforeAnythingIsRead) {
  write("a.txt", "some text");
  const auto with = [&](auto change) {
    TextOptions options = options_;
    change(options);
    TextDataset data(options);
  };
  EXPECT_THROW(with([](auto& o) { o.packing = "loose"; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.invalid_utf8 = "ignore"; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.max_length = 1; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.folder = "/no/such"; }), UsageError);
  EXPECT_THROW(with([](auto& o) { o.tokenizer = "/no/such"; }), UsageError);
  EXPECT_THAT([&] { with([](auto& o) { o.max_length = 100; }); },
              ThrowsMessage<UsageError>(HasSubstr("got 9 tokens")));
  models::ModelOptions model;
  model.task = "classify";
  model.vocab_size = 512;
  EXPECT_THAT([&] { make_text_dataset(options_, model); },
              ThrowsMessage<UsageError>(HasSubstr("task = lm")));
  model.task = "lm";
  EXPECT_EQ(make_text_dataset(options_, model)->size(), 2);
  model.vocab_size = 200;
  EXPECT_THAT([&] { make_text_dataset(options_, model); },
              ThrowsMessage<UsageError>(HasSubstr("at least 256")));
}

TEST_F(Datasets, AFolderOfEmptyTextsIsAnErrorAndLeavesNoCache) {
  write("a.txt", "");
  write("b.json", "[]");
  EXPECT_THAT([&] { TextDataset data(options_); },
              ThrowsMessage<UsageError>(HasSubstr("every file or text in it is empty")));
  for (const auto& entry : fs::recursive_directory_iterator(options_.folder))
    EXPECT_NE(entry.path().extension(), ".tokens") << entry.path();
}

// ---- the cache ----------------------------------------------------------------------------------

TEST_F(Datasets, TheCacheIsUsedUntilAnythingChanges) {
  write("a.txt", "hello world");
  EXPECT_EQ(why_made(), "there was none");
  EXPECT_EQ(why_made(), "used");
  const fs::path first = cache_file();
  options_.max_length = 2;  // another cut of the same tokens
  options_.packing = "padded";
  EXPECT_EQ(why_made(), "used");
  write("a.txt", "hello other");  // the same size
  fs::last_write_time(fs::path(options_.folder) / "a.txt",
                      fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_EQ(why_made(), "there was none");
  EXPECT_NE(cache_file(), first);  // and the stale one is gone
  EXPECT_EQ(row(TextDataset(options_).batch({0}).input_ids, 0)[0], 'h');
  write("b.txt", "more");
  EXPECT_EQ(why_made(), "there was none");
  options_.tokenizer = std::string(MOONSHARD_SOURCE_DIR) + "/tests/data/tokenizers/gpt2.json";
  EXPECT_EQ(why_made(), "there was none");
  EXPECT_EQ(why_made(), "used");
  options_.tokenizer = "bytes";
  EXPECT_EQ(why_made(), "used");  // each tokenizer keeps its own
  EXPECT_EQ(read_bytes(fs::path(options_.folder) / ".moonshard/.gitignore"), "*\n");
}

TEST_F(Datasets, ADamagedCacheIsMadeAgain) {
  write("a.txt", "hello world, this is text");
  ASSERT_EQ(why_made(), "there was none");
  const fs::path path = cache_file();
  const std::string good = read_bytes(path);
  // Every byte turned, many lengths: none is taken for good, none ends the process.
  for (size_t at = 0; at < good.size(); ++at) {
    for (const bool cut : {false, true}) {
      if (cut && at % 5 != 0) continue;
      std::string bad = cut ? good.substr(0, at) : good;
      if (!cut) bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      std::ofstream(path, std::ios::binary) << bad;
      ASSERT_NE(why_made(), "used") << at << (cut ? " cut" : " turned");
      ASSERT_EQ(read_bytes(path), good);
    }
  }
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);  // somebody else's doing
  EXPECT_NE(why_made(), "used");
}

TEST_F(Datasets, ACacheMadeByHandHasNoIdsBeyondTheVocabulary) {
  write("a.txt", "hello");
  ASSERT_EQ(why_made(), "there was none");
  const fs::path path = cache_file();
  std::string bad = read_bytes(path);
  const uint16_t beyond = 300;
  std::memcpy(bad.data() + sizeof(TokenHead), &beyond, 2);
  // One block: its checksum stands before the tail, padded to eight bytes.
  const auto bytes = std::as_bytes(std::span(bad));
  const size_t table = bad.size() - sizeof(TokenTail) - 8;
  const uint32_t block = crc32c(bytes.first(table));
  std::memcpy(bad.data() + table, &block, sizeof(block));
  const uint64_t tail = crc32c(bytes.subspan(table, bad.size() - 8 - table));
  std::memcpy(bad.data() + bad.size() - 8, &tail, sizeof(tail));
  std::ofstream(path, std::ios::binary) << bad;
  EXPECT_EQ(why_made(), "it had ids beyond the vocabulary");
}

// 40,000 tokens of two bytes: five blocks of 16 KiB.
TEST_F(Datasets, TokensCutOrOverwrittenWhileInUseAreErrorsThatNameFileAndBlock) {
  write("a.txt", std::string(40'000, 'x'));
  const TextDataset data(options_);
  const fs::path path = cache_file();
  const std::string good = read_bytes(path);
  const int64_t last = data.size() - 1;
  EXPECT_EQ(row(data.batch({last}).input_ids, 0)[0], 'x');

  std::string zeroed = good;
  zeroed.replace(3 * kTokenBlockBytes + 100, 4096, std::string(4096, '\0'));
  std::ofstream(path, std::ios::binary) << zeroed;  // the same file, no new one
  EXPECT_EQ(row(data.batch({0}).input_ids, 0)[0], 'x');
  const int64_t in_zeros = (3 * kTokenBlockBytes + 200) / 2 / 4;
  EXPECT_THAT([&] { data.batch({in_zeros}); },
              ThrowsMessage<IoError>(AllOf(HasSubstr(path.string()), HasSubstr("block 3 "))));

  fs::resize_file(path, 2 * kTokenBlockBytes);
  EXPECT_EQ(row(data.batch({0}).input_ids, 0)[0], 'x');
  EXPECT_THAT([&] { data.batch({last}); },
              ThrowsMessage<IoError>(AllOf(HasSubstr(path.string()), HasSubstr("was cut"))));
  EXPECT_EQ(why_made(), "it was cut off");
  EXPECT_EQ(read_bytes(path), good);
}

TEST_F(Datasets, AFolderThatCannotBeWrittenHasItsCacheElsewhere) {
  write("a.txt", "hello world");
  write(".moonshard", "a file where the folder would be");
  EXPECT_EQ(why_made(), "there was none");
  EXPECT_EQ(why_made(), "used");
  EXPECT_THAT(TextDataset(options_).facts()["cache"]["file"].get<std::string>(),
              HasSubstr("/cache/moonshard/tokens/"));
  // Nowhere at all: a file without a name.
  ::setenv("XDG_CACHE_HOME", (fs::path(options_.folder) / "a.txt").c_str(), 1);
  const TextDataset data(options_);
  EXPECT_TRUE(data.facts()["cache"]["file"].is_null());
  EXPECT_THAT(row(data.batch({0}).input_ids, 0), ElementsAre('h', 'e', 'l', 'l'));
  options_.cache = "none";
  EXPECT_EQ(why_made(), "cache = none");
  options_.cache = (folder_.path() / "own").string();
  EXPECT_EQ(why_made(), "there was none");
  EXPECT_EQ(why_made(), "used");
}

TEST_F(Datasets, SeveralProcessesMakeItOnceAndAllReadTheSame) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "word " + std::to_string(i) + "\n";
  write("a.txt", text);
  options_.tokenizer = std::string(MOONSHARD_SOURCE_DIR) + "/tests/data/tokenizers/gpt2.json";
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 9;
      try {
        const TextDataset data(options_);
        code = data.facts()["cache"]["used"].get<bool>() ? 1 : 0;
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  int made = 0, used = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    made += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
    used += WIFEXITED(status) && WEXITSTATUS(status) == 1 ? 1 : 0;
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(used, 3);
  EXPECT_EQ(why_made(), "used");
}

TEST(TokenChecksum, DoesNotDependOnHowBytesAreDivided) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes.push_back(static_cast<char>(i * 37));
  Checksum whole;
  whole.add(bytes);
  for (const size_t step : {1u, 3u, 8u, 31u, 32u, 33u, 500u}) {
    Checksum parts;
    for (size_t at = 0; at < bytes.size(); at += step)
      parts.add(std::string_view(bytes).substr(at, step));
    EXPECT_EQ(parts.value(), whole.value()) << step;
  }
  Checksum longer;
  longer.add(bytes + '\0');
  EXPECT_NE(longer.value(), whole.value());
}

// ---- classification -----------------------------------------------------------------------------

class Labelled : public testing::Test {
 protected:
  ClassificationOptions with(const std::string& lines) {
    ClassificationOptions options;
    options.file = (folder_.path() / "data.jsonl").string();
    options.max_length = 4;
    std::ofstream(options.file, std::ios::binary) << lines;
    return options;
  }
  std::string error_of(const std::string& lines) {
    try {
      ClassificationDataset data(with(lines));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  TemporaryFolder folder_;
};

TEST_F(Labelled, NumbersAreClassesAndTextsAreSorted) {
  const ClassificationDataset numbers(
      with("{\"text\": \"ab\", \"label\": 2}\n{\"text\": \"cdefg\", \"label\": 0}\n"));
  EXPECT_EQ(numbers.num_labels(), 3);
  const Batch batch = numbers.batch({0, 1});
  EXPECT_THAT(row(batch.input_ids, 0), ElementsAre('a', 'b', 0, 0));
  EXPECT_THAT(row(batch.attention_mask, 0), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(row(batch.input_ids, 1), ElementsAre('c', 'd', 'e', 'f'));
  EXPECT_EQ(batch.labels[0].item<int64_t>(), 2);
  EXPECT_EQ(numbers.facts()["documents_truncated"], 1);
  EXPECT_EQ(numbers.facts()["tokens_dropped"], 1);
  EXPECT_EQ(numbers.batch({}).labels.size(0), 0);
  const ClassificationDataset texts(
      with("{\"text\": \"a\", \"label\": \"pos\"}\n{\"text\": \"b\", \"label\": \"neg\"}\n"));
  EXPECT_THAT(texts.labels(), ElementsAre("neg", "pos"));
  EXPECT_EQ(texts.batch({0}).labels[0].item<int64_t>(), 1);
  EXPECT_EQ(texts.facts()["labels"], (std::vector<std::string>{"neg", "pos"}));
}

TEST_F(Labelled, GivenLabelsHoldForEveryFile) {
  ClassificationOptions options = with("{\"text\": \"a\", \"label\": \"pos\"}\n");
  options.labels = {"pos", "neg"};
  EXPECT_EQ(ClassificationDataset(options).batch({0}).labels[0].item<int64_t>(), 0);
  EXPECT_EQ(ClassificationDataset(options).num_labels(), 2);
  options.labels = {"good", "bad"};
  EXPECT_THAT([&] { ClassificationDataset data(options); },
              ThrowsMessage<IoError>(HasSubstr("data.jsonl:1: expected one of the 2 labels")));
  options.labels = {"pos", "pos"};
  EXPECT_THROW(ClassificationDataset{options}, UsageError);
}

TEST_F(Labelled, PartsShareNothingAndAreTheSameEveryTime) {
  std::string lines;
  for (int i = 0; i < 1000; ++i)
    lines += fmt::format("{{\"text\": \"{:03}\", \"label\": {}}}\n", i, i);
  ClassificationOptions options = with(lines);
  const auto labels_of = [&](const char* part) {
    options.part = part;
    const ClassificationDataset data(options);
    std::vector<int64_t> all(static_cast<size_t>(data.size()));
    for (int64_t i = 0; i < data.size(); ++i)
      all[static_cast<size_t>(i)] = data.batch({i}).labels[0].item<int64_t>();
    return all;
  };
  const auto train = labels_of("train"), test = labels_of("test");
  EXPECT_NEAR(static_cast<double>(test.size()), 200, 50);  // four standard deviations
  std::vector<int64_t> both = train;
  both.insert(both.end(), test.begin(), test.end());
  std::sort(both.begin(), both.end());
  EXPECT_EQ(both, labels_of("all"));
  EXPECT_EQ(test, labels_of("test"));
  // A neighbouring file: its one line more changes the part of no other line.
  with("{\"text\": \"new\", \"label\": 1000}\n" + lines);
  for (const auto& [part, before] : {std::pair{"train", train}, std::pair{"test", test}}) {
    std::vector<int64_t> after = labels_of(part);
    std::erase(after, 1000);
    EXPECT_EQ(after, before) << part;
  }
  options.split_seed = 1;
  EXPECT_NE(test, labels_of("test"));
  options.test_share = 0;
  EXPECT_THROW(labels_of("test"), UsageError);
}

TEST_F(Labelled, WrongLinesAreErrorsWithTheirNumber) {
  const std::string good = "{\"text\": \"a\", \"label\": 1}\n";
  for (const char* line :
       {"{\"text\": \"a\"}", "{\"text\": \"a\", \"label\": -1}",
        "{\"text\": \"a\", \"label\": 1.5}", "{\"text\": \"a\", \"label\": null}",
        "{\"text\": \"a\", \"label\": [1]}", "{\"text\": \"a\", \"label\": \"one\"}",
        "{\"text\": 1, \"label\": 1}", "{\"label\": 1}", "{\"text\": \"a\", \"label\": 99999999}",
        "{\"text\": \"a\", \"label\": 1"}) {
    EXPECT_THAT(error_of(good + good + line), HasSubstr("data.jsonl:3")) << line;
  }
  EXPECT_THAT(error_of("\n"), HasSubstr("got none"));
  models::ModelOptions model;
  model.task = "classify";
  model.vocab_size = 256;
  model.num_labels = 2;
  const ClassificationOptions options = with(good + "{\"text\": \"a\", \"label\": 2}\n");
  EXPECT_THAT(
      [&] { make_classification_dataset(options, model); },
      ThrowsMessage<UsageError>(HasSubstr(
          "data.jsonl:2: expected a label from 0 to 1 (num_labels = 2 of the model), got 2")));
  model.num_labels = 3;
  EXPECT_EQ(make_classification_dataset(options, model)->size(), 2);
  model.task = "lm";
  EXPECT_THROW(make_classification_dataset(options, model), UsageError);
}

}  // namespace
}  // namespace moonshard::data
