#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/interrupt.h"
#include "runtime/weights/safetensors.h"
#include "runtime/weights/weight_source.h"
#include "tests/runtime/weights/raw_safetensors.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int count_files(const std::filesystem::path& folder) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

const std::vector<at::ScalarType> kAllDtypes = {at::kBool,  at::kByte,  at::kChar, at::kShort,
                                                at::kInt,   at::kLong,  at::kHalf, at::kBFloat16,
                                                at::kFloat, at::kDouble};

TEST(Safetensors, RoundTripsEveryDtypeScalarsAndEmptyTensors) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "all.safetensors";
  NamedTensors tensors;
  for (const at::ScalarType type : kAllDtypes) {
    tensors.emplace_back(at::toString(type), at::arange(24).reshape({2, 3, 4}).to(type));
    tensors.emplace_back(std::string("scalar ") + at::toString(type), at::ones({}, type));
  }
  tensors.emplace_back("empty", at::zeros({3, 0, 5}));
  tensors.emplace_back("Größe \"\\\n", at::ones({1}));
  write_safetensors(path, tensors, {{"format", "pt"}, {"note", "a \"quoted\" one"}});

  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata().at("note"), "a \"quoted\" one");
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor back = file.read(name);
    EXPECT_EQ(back.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(back, tensor)) << name;
  }
}

TEST(Safetensors, KeepsTheOrderGivenAndStartsDataAtAMultipleOfEight) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_safetensors(path, {{"z", at::ones({2})}, {"a", at::ones({3})}});
  const std::string bytes = read_bytes(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(bytes.size(), 8 + length + 20);
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.entries()[0].name, "z");
  EXPECT_EQ(file.entries()[1].name, "a");
}

// Larger than a piece, so that the seams between pieces are seen.
TEST(Safetensors, ConvertsIntoAnyDtypeAndStridesPieceByPiece) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const int64_t rows = 1700, columns = 3000;  // 20.4 MB of float32
  const at::Tensor source = at::arange(rows * columns, at::kFloat).reshape({rows, columns});
  ASSERT_GT(static_cast<int64_t>(source.nbytes()), kPieceBytes);
  write_safetensors(path, {{"w", source}, {"transposed", source.t()}});
  const SafetensorsFile file = SafetensorsFile::open(path);

  const at::Tensor wider = at::empty({rows, columns}, at::kDouble);
  file.read_into("w", wider);
  EXPECT_TRUE(at::equal(wider, source.to(at::kDouble)));
  const at::Tensor narrower = at::empty({rows, columns}, at::kBFloat16);
  file.read_into("w", narrower);
  EXPECT_TRUE(at::equal(narrower, source.to(at::kBFloat16)));
  const at::Tensor strided = at::zeros({columns, rows}).t();
  file.read_into("w", strided);
  EXPECT_TRUE(at::equal(strided, source));
  EXPECT_TRUE(at::equal(file.read("transposed"), source.t()));
}

TEST(Safetensors, PiecesCoverEveryElementOnceInRowMajorOrder) {
  const at::Tensor base = at::arange(2 * 3 * 4 * 5);
  for (const at::Tensor& tensor :
       {base, base.reshape({2, 3, 4, 5}), base.reshape({2, 3, 4, 5}).permute({3, 1, 0, 2}),
        base.reshape({6, 20}).slice(1, 0, 20, 3), base.slice(0, 0, 120, 7), at::zeros({0, 3})}) {
    for (const int64_t most : {1, 2, 3, 7, 10, 59, 1000}) {
      std::vector<at::Tensor> pieces = {at::empty({0}, at::kLong)};
      for_each_piece(tensor, most, [&](const at::Tensor& piece) {
        EXPECT_LE(piece.numel(), most);
        pieces.push_back(piece.reshape({-1}).to(at::kLong));
      });
      EXPECT_TRUE(at::equal(at::cat(pieces), tensor.reshape({-1}).to(at::kLong)));
    }
  }
}

TEST(Safetensors, AFileCutAfterItWasOpenedIsAnErrorAndNoSignal) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_safetensors(path, {{"w", at::ones({1000})}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  ASSERT_EQ(::truncate(path.c_str(), 200), 0);
  EXPECT_THROW(file.read("w"), IoError);
  const std::string text = error_of([&] { file.read("w"); });
  EXPECT_THAT(text, HasSubstr("a.safetensors: tensor 'w': expected 4000 bytes at position"));
  EXPECT_THAT(text, HasSubstr("the file was cut after it was opened"));
}

TEST(Safetensors, AnOpenFileSurvivesItsReplacement) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_safetensors(path, {{"w", at::full({10}, 1.0)}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  write_safetensors(path, {{"w", at::full({10}, 2.0)}});
  EXPECT_EQ(file.read("w").sum().item<double>(), 10);
  EXPECT_EQ(SafetensorsFile::open(path).read("w").sum().item<double>(), 20);
}

TEST(Safetensors, NamesTheNearestTensorAndTheShapesThatDiffer) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_safetensors(path, {{"model.norm.weight", at::ones({4})}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_THAT(error_of([&] { file.read("model.nrom.weight"); }),
              HasSubstr("expected the name of one of its 1 tensors, got 'model.nrom.weight'; did "
                        "you mean 'model.norm.weight'?"));
  EXPECT_THAT(error_of([&] {
                file.read_into("model.norm.weight", at::ones({2, 2}));
              }),
              HasSubstr("tensor 'model.norm.weight': expected a target of shape [4], got [2, 2]"));
  EXPECT_THROW(file.read_into("model.norm.weight", at::Tensor()), UsageError);
}

TEST(Safetensors, AWriteThatFailsLeavesTheOldFileAndNoTemporary) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_safetensors(path, {{"w", at::ones({2})}});
  const std::string before = read_bytes(path);
  EXPECT_THAT(error_of([&] {
                write_safetensors(path, {{"w", at::ones({2})}, {"w", at::ones(1)}});
              }),
              HasSubstr("expected each name once, got 'w' twice"));
  EXPECT_THAT(error_of([&] {
                write_safetensors(path, {{"w", at::ones({2}, at::kComplexFloat)}});
              }),
              HasSubstr("tensor 'w': expected a tensor of BOOL, U8, I8"));
  EXPECT_THAT(error_of([&] {
                write_safetensors(path, {{"\xff", at::ones({2})}});
              }),
              HasSubstr("expected names and metadata in UTF-8"));
  EXPECT_THAT(error_of([&] {
                write_safetensors(path, {{"__metadata__", at::ones({2})}});
              }),
              HasSubstr("that is not __metadata__"));
  EXPECT_THAT(error_of([&] {
                write_safetensors(path, {{"w", at::Tensor()}});
              }),
              HasSubstr("expected a dense tensor with values, got none"));
  EXPECT_THAT(
      error_of([&] {
        write_safetensors(path, {{"w", at::empty({2}, at::TensorOptions().device("meta"))}});
      }),
      HasSubstr("only a shape (device meta)"));
  EXPECT_THAT(error_of([&] {
                write_safetensors(path, {{"w", at::ones(std::vector<int64_t>(17, 1))}});
              }),
              HasSubstr("expected at most 16 dimensions, got 17"));
  // A stop in the middle, after the temporary was made.
  request_interrupt();
  EXPECT_THROW(write_safetensors(path, {{"w", at::zeros({100})}}), Interrupted);
  clear_interrupt();
  EXPECT_EQ(read_bytes(path), before);
  EXPECT_EQ(count_files(folder.path()), 1);
}

TEST(Safetensors, TemporariesHaveTheNamesThatStaleOnesAreSweptBy) {
  const TemporaryFolder folder;
  StagedFile file(folder.path() / "a.safetensors");
  const auto item = *std::filesystem::directory_iterator(folder.path());
  EXPECT_TRUE(is_temporary_name(item.path().filename().string()));
  EXPECT_EQ(sweep_stale_temporaries(folder.path()), 0) << "its writer lives";
}

TEST(Safetensors, AFolderThatIsNotThereIsAClearError) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { write_safetensors(folder.path() / "no" / "a.safetensors", {}); }),
              HasSubstr("a.safetensors: cannot create: No such file or directory"));
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(folder.path()); }),
              HasSubstr("expected a file, got a folder"));
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(std::string(5000, 'x')); }),
              HasSubstr("expected a path of at most 4096 bytes, got 5000"));
}

// ---- shards -----------------------------------------------------------------------------------

NamedTensors five_tensors(double value) {
  NamedTensors tensors;
  for (int i = 0; i < 5; ++i)
    tensors.emplace_back("layer." + std::to_string(i), at::full({100}, value + i));
  return tensors;
}

TEST(Shards, RoundTripThroughFolderAndIndex) {
  const TemporaryFolder folder;
  const NamedTensors tensors = five_tensors(0);
  const auto names = write_sharded(folder.path() / "made", tensors, 900);
  EXPECT_THAT(names,
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors"));
  EXPECT_THAT(read_bytes(folder.path() / "made" / kIndexFileName),
              HasSubstr("\"total_size\": 2000"));
  for (const auto& path :
       {folder.path() / "made", folder.path() / "made" / "model.safetensors.index.json"}) {
    const WeightSource source = open_weights(path);
    ASSERT_EQ(source.size(), 5u);
    EXPECT_EQ(source.metadata().at("format"), "pt");
    for (const auto& [name, tensor] : tensors) EXPECT_TRUE(at::equal(source.read(name), tensor));
  }
  EXPECT_THAT(open_weights(folder.path() / "made").file_of("layer.4"),
              HasSubstr("model-00003-of-00003.safetensors"));
}

TEST(Shards, ASaveOverAnotherLeavesNothingOfTheOldOne) {
  const TemporaryFolder folder;
  for (const int64_t shard_bytes : {900, 1 << 20, 500, 900}) {
    const double value = static_cast<double>(shard_bytes);
    const auto names = write_sharded(folder.path(), five_tensors(value), shard_bytes);
    const int index_files = names.size() > 1 ? 2 : 0;  // the index and its checksum
    EXPECT_EQ(count_files(folder.path()), static_cast<int>(names.size()) + index_files);
    EXPECT_EQ(open_weights(folder.path()).read("layer.2").mean().item<double>(), value + 2);
  }
}

TEST(Shards, AFailedSaveLeavesTheOldOneWhole) {
  const TemporaryFolder folder;
  write_sharded(folder.path(), five_tensors(1), 900);
  const int files = count_files(folder.path());
  request_interrupt();
  EXPECT_THROW(write_sharded(folder.path(), five_tensors(7), 900), Interrupted);
  clear_interrupt();
  EXPECT_EQ(count_files(folder.path()), files);
  EXPECT_EQ(open_weights(folder.path()).read("layer.0").mean().item<double>(), 1);
  EXPECT_THAT(error_of([&] { write_sharded(folder.path(), five_tensors(7), 0); }),
              HasSubstr("expected max_shard_bytes > 0, got 0"));
}

TEST(Shards, AFolderWithoutIndexGivesAllItsFiles) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a.safetensors", {{"x", at::ones({1})}});
  write_safetensors(folder.path() / "b.safetensors", {{"y", at::ones({1})}});
  EXPECT_THAT(open_weights(folder.path()).names(), ElementsAre("x", "y"));
  write_safetensors(folder.path() / "c.safetensors", {{"x", at::ones({1})}});
  const std::string text = error_of([&] { open_weights(folder.path()); });
  EXPECT_THAT(text,
              HasSubstr("c.safetensors: tensor 'x': expected it in one file, got it also in"));
  EXPECT_THAT(text, HasSubstr("a.safetensors"));
  // The usual single file comes before the others.
  write_safetensors(folder.path() / "model.safetensors", {{"m", at::ones({1})}});
  EXPECT_THAT(open_weights(folder.path()).names(), ElementsAre("m"));
}

std::string index_error(const std::string& text) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "inner");
  write_safetensors(folder.path() / "outside.safetensors", {{"w", at::ones({1})}});
  write_safetensors(folder.path() / "inner" / "a.safetensors", {{"w", at::ones({1})}});
  write_bytes(folder.path() / "inner" / "model.safetensors.index.json", text);
  return error_of([&] { open_weights(folder.path() / "inner"); });
}

TEST(Shards, AnIndexMayOnlyNameFilesOfItsFolderThatHoldTheTensor) {
  EXPECT_EQ(index_error(R"({"metadata": {}, "weight_map": {"w": "a.safetensors"}})"), "");
  const char* plain = "expected the plain name of a file in the same folder, got";
  EXPECT_THAT(index_error(R"({"weight_map": {"w": "../outside.safetensors"}})"), HasSubstr(plain));
  EXPECT_THAT(index_error(R"({"weight_map": {"w": "/etc/passwd"}})"), HasSubstr(plain));
  EXPECT_THAT(index_error(R"({"weight_map": {"w": ".."}})"), HasSubstr(plain));
  EXPECT_THAT(index_error(R"({"weight_map": {"w": "a\u0000b"}})"), HasSubstr(plain));
  EXPECT_THAT(index_error(R"({"weight_map": {"w": 3}})"), HasSubstr(plain));
  EXPECT_THAT(index_error(R"({"weight_map": {"v": "a.safetensors"}})"),
              HasSubstr("expected tensor 'v' in 'a.safetensors', got none there"));
  EXPECT_THAT(index_error(R"({"weight_map": {"w": "b.safetensors"}})"),
              HasSubstr("expected the file 'b.safetensors' that it names, got none"));
  EXPECT_THAT(index_error(R"({"weight_map": {"w": "a.safetensors", "w": "a.safetensors"}})"),
              HasSubstr("expected each key once, got 'w' twice"));
  EXPECT_THAT(index_error(R"({"weight_map": {}})"), HasSubstr("got an empty one"));
  EXPECT_THAT(index_error(R"({})"),
              HasSubstr("expected 'weight_map' with names and files, got none"));
  EXPECT_THAT(index_error(R"([1])"), HasSubstr("expected a JSON object, got a JSON array"));
  EXPECT_THAT(index_error("{\"weight_map\""),
              HasSubstr("expected a JSON object, got something else"));
  EXPECT_THAT(index_error(std::string("{}\0x", 4)), HasSubstr("something else at byte 2"));
  EXPECT_THAT(index_error("{\"a\":" + std::string(100'000, '[')), HasSubstr("at most 32 levels"));
}

// ---- paths ------------------------------------------------------------------------------------

TEST(WeightPaths, ANameOfTheHubSaysHowToFetchIt) {
  const std::string text = error_of([] { open_weights("meta-llama/Llama-3.1-8B-Instruct"); });
  EXPECT_THAT(text, HasSubstr("moonshard downloads nothing"));
  EXPECT_THAT(text, HasSubstr("if the model is gated, accept its licence on its page"));
  EXPECT_THAT(text, HasSubstr("HF_TOKEN"));
  EXPECT_THAT(text, HasSubstr("hf download meta-llama/Llama-3.1-8B-Instruct --local-dir "
                              "Llama-3.1-8B-Instruct"));
  EXPECT_THAT(text, HasSubstr("weights = \"Llama-3.1-8B-Instruct\""));
  for (const char* path : {"./a/b", "/no/such", "a/b/c", "a b/c", "nothing"}) {
    const std::string other = error_of([&] { open_weights(path); });
    EXPECT_THAT(other, HasSubstr("which does not exist; check the path"));
  }
}

TEST(WeightPaths, OtherFormatsAndEmptyFoldersAreNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { open_weights(folder.path()); }),
              HasSubstr("expected .safetensors files in the folder"));
  write_bytes(folder.path() / "pytorch_model.bin", "x");
  EXPECT_THAT(error_of([&] { open_weights(folder.path() / "pytorch_model.bin"); }),
              HasSubstr("convert other formats to safetensors first"));
}

}  // namespace
}  // namespace moonshard::weights
