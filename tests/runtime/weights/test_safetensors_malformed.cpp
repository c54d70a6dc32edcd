// T12 to T14 of the threat model: files that lie. Every case has the error that a user reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/weights/safetensors.h"
#include "tests/runtime/weights/raw_safetensors.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::weights {
namespace {

using ::testing::HasSubstr;

// Opens bytes as a file; its error, which must be an IoError that names the file.
std::string bytes_error(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "bad.safetensors";
  write_bytes(path, bytes);
  try {
    SafetensorsFile::open(path);
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bad.safetensors: "));
    return error.what();
  }
  return "";
}

std::string header_error(const std::string& header, size_t data_bytes = 0) {
  return bytes_error(raw_safetensors(header, std::string(data_bytes, '\1')));
}

// One tensor 'w' with these fields and data.
std::string tensor_error(const std::string& fields, size_t data_bytes) {
  return header_error("{\"w\":{" + fields + "}}", data_bytes);
}

TEST(MalformedSafetensors, TheHelpersGiveGoodFilesToo) {
  EXPECT_EQ(header_error("{}"), "");
  EXPECT_EQ(header_error("{}      "), "");
  EXPECT_EQ(tensor_error(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 8), "");
  EXPECT_EQ(tensor_error(R"("dtype":"F32","shape":[0,7],"data_offsets":[0,0])", 0), "");
  EXPECT_EQ(header_error(R"({"__metadata__":{"a":"b"}})"), "");
}

TEST(MalformedSafetensors, LengthsThatDoNotFitTheFile) {
  EXPECT_THAT(bytes_error(""), HasSubstr("expected a safetensors file of at least 8 bytes, got 0"));
  EXPECT_THAT(bytes_error("1234567"), HasSubstr("at least 8 bytes, got 7"));
  EXPECT_THAT(bytes_error(std::string(8, '\xff') + "{}"),
              HasSubstr("header of at most 100000000 bytes, got 18446744073709551615"));
  EXPECT_THAT(bytes_error(std::string("\x00\x00\x00\x00\x00\x00\x00\x80", 8) + "{}"),
              HasSubstr("at most 100000000 bytes, got 9223372036854775808"));
  EXPECT_THAT(bytes_error(std::string("\x01\xe1\xf5\x05\x00\x00\x00\x00", 8) + "{}"),
              HasSubstr("at most 100000000 bytes, got 100000001"));
  EXPECT_THAT(bytes_error(std::string("\x03\x00\x00\x00\x00\x00\x00\x00", 8) + "{}"),
              HasSubstr("expected a header of 3 bytes, as its first 8 bytes say, got 2 bytes"));
}

TEST(MalformedSafetensors, HeadersThatAreNotTheirJson) {
  EXPECT_THAT(header_error(""), HasSubstr("begins with '{', got an empty one"));
  EXPECT_THAT(header_error(" {}"), HasSubstr("begins with '{', got ' '"));
  EXPECT_THAT(header_error("[]"), HasSubstr("begins with '{', got '['"));
  EXPECT_THAT(header_error("\xef\xbb\xbf{}"), HasSubstr("begins with '{'"));
  EXPECT_THAT(header_error("{"), HasSubstr("something else at byte"));
  EXPECT_THAT(header_error("{}x"), HasSubstr("something else at byte 3"));
  EXPECT_THAT(header_error(std::string("{}\0junk", 7)), HasSubstr("got a zero byte at byte 2"));
  EXPECT_THAT(header_error("{\"\xff\":{}}"), HasSubstr("something else at byte"));
  EXPECT_THAT(header_error(R"({"\ud800":{}})"), HasSubstr("something else at byte"));
  EXPECT_THAT(header_error(R"({"w":[]})"),
              HasSubstr("tensor 'w': expected an object with dtype, shape and data_offsets, got a "
                        "list"));
  EXPECT_THAT(header_error(R"({"w":null})"), HasSubstr("got null"));
  EXPECT_THAT(header_error("{\"w\":" + std::string(1'000'000, '[')), HasSubstr("got a list"));
}

TEST(MalformedSafetensors, MetadataOtherThanTexts) {
  const char* expected = "expected __metadata__ as a map of text to text, got ";
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":1}})"), HasSubstr(expected));
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":{}}})"), HasSubstr(expected));
  EXPECT_THAT(header_error(R"({"__metadata__":"a"})"), HasSubstr(expected));
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":"1","a":"2"}})"),
              HasSubstr("expected each key once, got 'a' twice in __metadata__"));
  EXPECT_THAT(header_error(R"({"__metadata__":{},"__metadata__":{}})"),
              HasSubstr("expected __metadata__ once, got it twice"));
  std::string many = "{\"__metadata__\":{\"x\":\"\"";
  for (size_t i = 0; i < kMaxMetadataEntries; ++i) many += ",\"" + std::to_string(i) + "\":\"\"";
  EXPECT_THAT(header_error(many + "}}"), HasSubstr("expected at most 65536 entries"));
}

TEST(MalformedSafetensors, FieldsThatAreMissingDoubledOrUnknown) {
  EXPECT_THAT(tensor_error(R"("dtype":"F32","shape":[2])", 8),
              HasSubstr("tensor 'w': expected the keys dtype, shape and data_offsets, got no "
                        "data_offsets"));
  EXPECT_THAT(tensor_error(R"("shape":[2],"data_offsets":[0,8])", 8), HasSubstr("got no dtype"));
  EXPECT_THAT(tensor_error(R"("dtype":"F32","data_offsets":[0,8])", 8), HasSubstr("got no shape"));
  EXPECT_THAT(tensor_error(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])", 8),
              HasSubstr("expected each key once, got 'dtype' twice"));
  EXPECT_THAT(tensor_error(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":{})", 8),
              HasSubstr("data_offsets, got 'extra'"));
  EXPECT_THAT(tensor_error(R"("dtype":"F32","shape":2,"data_offsets":[0,8])", 8),
              HasSubstr("expected a list of whole numbers from 0 as shape, got 2"));
  EXPECT_THAT(tensor_error(R"("dtype":4,"shape":[2],"data_offsets":[0,8])", 8),
              HasSubstr("expected a dtype's name, got 4"));
}

TEST(MalformedSafetensors, DtypesOutsideTheListByName) {
  for (const char* dtype : {"F8_E4M3", "U16", "U64", "f32", "", "C64"}) {
    EXPECT_THAT(
        tensor_error(
            std::string("\"dtype\":\"") + dtype + "\",\"shape\":[2],\"data_offsets\":[0,8]", 8),
        HasSubstr(std::string("expected a dtype of BOOL, U8, I8, I16, I32, I64, F16, BF16, "
                              "F32, F64, got '") +
                  dtype + "'"));
  }
}

TEST(MalformedSafetensors, ShapesThatOverflowWhereverAZeroStands) {
  const char* expected = "expected a shape of less than 2^63 bytes, got [";
  const auto shape = [](const std::string& sizes) {
    return tensor_error("\"dtype\":\"F32\",\"shape\":[" + sizes + "],\"data_offsets\":[0,0]", 0);
  };
  EXPECT_THAT(shape("4294967296,4294967296"), HasSubstr(expected));
  EXPECT_THAT(shape("4294967296,4294967296,0"), HasSubstr(expected));
  EXPECT_THAT(shape("0,4294967296,4294967296"), HasSubstr(expected));
  EXPECT_THAT(shape("9223372036854775807"), HasSubstr(expected));
  EXPECT_THAT(shape("9223372036854775808"), HasSubstr("expected numbers below 2^63 in shape"));
  EXPECT_THAT(shape("18446744073709551616"), HasSubstr("whole numbers from 0 as shape, got the"));
  EXPECT_THAT(shape("-1"), HasSubstr("expected a list of whole numbers from 0 as shape, got -1"));
  EXPECT_THAT(shape("1.0"), HasSubstr("got the number '1.0'"));
  EXPECT_THAT(shape("\"2\""), HasSubstr("as shape, got a text"));
  EXPECT_THAT(shape("0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"), HasSubstr("at most 16 numbers in shape"));
}

TEST(MalformedSafetensors, OffsetsThatDisagreeWithTheShape) {
  const auto offsets = [](const std::string& numbers, size_t data_bytes) {
    return tensor_error("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" + numbers + "]",
                        data_bytes);
  };
  EXPECT_THAT(offsets("0,4", 4), HasSubstr("tensor 'w': expected 8 bytes for shape [2] of F32, got "
                                           "data_offsets [0, 4] of 4 bytes"));
  EXPECT_THAT(offsets("0,0", 0), HasSubstr("expected 8 bytes for shape [2] of F32"));
  EXPECT_THAT(offsets("8,0", 8), HasSubstr("[begin, end] with begin <= end, got [8, 0]"));
  EXPECT_THAT(offsets("0", 8), HasSubstr("[begin, end] with begin <= end, got [0]"));
  EXPECT_THAT(offsets("0,8,8", 8), HasSubstr("at most 2 numbers in data_offsets"));
  EXPECT_THAT(offsets("-8,0", 8), HasSubstr("as data_offsets, got -8"));
  EXPECT_THAT(offsets("9223372036854775800,9223372036854775807", 8), HasSubstr("expected 8 bytes"));
}

TEST(MalformedSafetensors, GapsOverlapsAndBytesLeftOver) {
  const auto pair = [](const std::string& a, const std::string& b, size_t data_bytes) {
    const std::string fields = "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":";
    return header_error("{\"a\":" + fields + a + "},\"b\":" + fields + b + "}}", data_bytes);
  };
  EXPECT_EQ(pair("[4,8]", "[0,4]", 8), "") << "the order of names is free";
  EXPECT_THAT(
      pair("[0,4]", "[8,12]", 12),
      HasSubstr("tensor 'b': expected its data at byte 4, where 'a' ends, got 8: there is a "
                "gap"));
  EXPECT_THAT(pair("[0,4]", "[2,6]", 6), HasSubstr("got 2: the two overlap"));
  EXPECT_THAT(pair("[0,4]", "[0,4]", 4), HasSubstr("got 0: the two overlap"));
  EXPECT_THAT(pair("[4,8]", "[8,12]", 12), HasSubstr("at byte 0, where the header ends, got 4"));
  EXPECT_THAT(pair("[0,4]", "[4,8]", 9),
              HasSubstr("expected 8 bytes of data, as the header says, got 9"));
  EXPECT_THAT(pair("[0,4]", "[4,8]", 7), HasSubstr("got 7; the file is cut short: copy it again"));
  EXPECT_THAT(header_error("{}", 1), HasSubstr("expected 0 bytes of data"));
}

TEST(MalformedSafetensors, NamesTwiceTooLongOrUnprintable) {
  const std::string empty = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(header_error("{\"w\":" + empty + ",\"w\":" + empty + "}"),
              HasSubstr("expected each tensor once, got 'w' twice"));
  EXPECT_THAT(header_error("{\"" + std::string(4097, 'n') + "\":" + empty + "}"),
              HasSubstr("expected names of at most 4096 bytes, got one of 4097"));
  EXPECT_EQ(header_error("{\"" + std::string(4096, 'n') + "\":" + empty + "}"), "");
  const std::string text = header_error(R"({"\u001b[31m)" + std::string(500, 'n') + "\":1}");
  EXPECT_THAT(text, HasSubstr("tensor '\\x1b[31mnnn"));
  EXPECT_LT(text.size(), 500u);
}

TEST(MalformedSafetensors, BoolsOtherThanZeroAndOne) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_bytes(path, raw_safetensors(R"({"w":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
                                    std::string("\0\1\2", 3)));
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_THAT(error_of([&] { file.read("w"); }),
              HasSubstr("tensor 'w': expected bytes 0 and 1 for BOOL, got 2"));
  EXPECT_THROW(file.read_into("w", at::zeros({3})), IoError);
}

TEST(MalformedSafetensors, APipeDoesNotBlockTheReader) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "pipe.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(folder.path() / "pipe.safetensors"); }),
              HasSubstr("expected a file, got a pipe or device"));
}

// ---- bounds -----------------------------------------------------------------------------------

int64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Opens a file in a child; how much its peak memory grew, in bytes (-1 when it died).
int64_t growth_when_opened(const std::filesystem::path& path) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    // Earlier tests of this process have taught malloc to keep large blocks; a new one would not.
    ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
    const int64_t before = peak_memory_bytes();
    error_of([&] { SafetensorsFile::open(path); });
    const int64_t grown = peak_memory_bytes() - before;
    ::_exit(::write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t grown = -1;
  if (::read(ends[0], &grown, sizeof grown) != sizeof grown) grown = -1;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return grown;
}

TEST(MalformedSafetensors, MemoryStaysNearTheSizeOfTheFileWhateverTheHeaderSays) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need memory of their own beside every allocation";
#endif
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const auto expect_bounded = [&](const std::string& bytes, const char* what) {
    write_bytes(path, bytes);
    const int64_t grown = growth_when_opened(path);
    EXPECT_GE(grown, 0) << what;
    EXPECT_LE(grown, 2 * static_cast<int64_t>(bytes.size()) + (64 << 20)) << what;
  };
  expect_bounded(std::string("\x00\xe1\xf5\x05\x00\x00\x00\x00", 8) + "{}",
                 "a long header, absent");
  expect_bounded(raw_safetensors("{\"" + std::string(90'000'000, 'x'), ""), "one long name");
  expect_bounded(raw_safetensors("{\"w\":" + std::string(90'000'000, '1'), ""), "one long number");
  std::string numbers = R"({"w":{"dtype":"U8","shape":[)";
  while (numbers.size() < 50'000'000) numbers += "0,0,0,0,0,0,0,0,";
  expect_bounded(raw_safetensors(numbers, ""), "a long shape");
  std::string tensors = "{";
  for (int i = 0; i < 1'000'001; ++i) {
    if (i > 0) tensors += ',';
    tensors += fmt::format("\"{}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", i);
  }
  expect_bounded(raw_safetensors(tensors + "}", ""), "a million tensors and one");
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(path); }),
              HasSubstr("expected at most 1000000 tensors, got more"));
}

// ---- random damage ----------------------------------------------------------------------------

// Changes a few bytes: flips, numbers of the header's own alphabet, cuts, doubled pieces.
std::string damaged(std::string bytes, std::mt19937& random) {
  static const std::string alphabet = "{}[]\",:0123456789-.eEF\\ux \xff";
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    const size_t at = below(bytes.size());
    switch (random() % 7) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
        break;
      case 2:
      case 3:
        bytes[at] = alphabet[below(alphabet.size())];
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5:
        bytes.erase(at, 1 + below(8));
        break;
      default:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16)));
        break;
    }
  }
  return bytes;
}

TEST(MalformedSafetensors, RandomDamageEndsInAnErrorOrInWholeTensors) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  write_safetensors(path,
                    {{"a", at::arange(6).reshape({2, 3}).to(at::kFloat)},
                     {"flag", at::ones({3}, at::kBool)},
                     {"empty", at::zeros({0, 4})},
                     {"scalar", at::ones({}, at::kBFloat16)}},
                    {{"format", "pt"}});
  const std::string good = read_bytes(path);
  std::mt19937 random(20'240'701);
  int opened = 0, refused = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string bytes = damaged(good, random);
    if (trial % 2 == 0 && bytes.size() >= 8) {  // the length field right, the rest damaged
      const size_t lost = good.size() - std::min(good.size(), bytes.size());
      uint64_t length = 0;
      std::memcpy(&length, good.data(), 8);
      length -= std::min<uint64_t>(length, lost);
      std::memcpy(bytes.data(), &length, 8);
    }
    write_bytes(path, bytes);
    try {
      const SafetensorsFile file = SafetensorsFile::open(path);
      ++opened;
      for (const TensorEntry& entry : file.entries()) {
        if (entry.dtype == at::kBool) {
          error_of([&] { file.read(entry.name); });
          continue;
        }
        const at::Tensor tensor = file.read(entry.name);
        ASSERT_EQ(static_cast<int64_t>(tensor.nbytes()), entry.end - entry.begin);
        ASSERT_LE(tensor.nbytes(), bytes.size());
      }
    } catch (const IoError&) {
      ++refused;
    } catch (const std::exception& error) {
      FAIL() << "trial " << trial << ": " << error.what();
    }
  }
  // Both ends are reached, or the damage tests nothing.
  EXPECT_GT(opened, 200);
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace moonshard::weights
