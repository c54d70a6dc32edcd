// The file of tokens without a dataset: files made by hand with fitting checksums, and where a
// cache is kept and made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"
#include "runtime/base/interrupt.h"
#include "runtime/data/text/token_file.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::data {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Documents of these ids.
CacheRequest request_of(std::vector<std::vector<int32_t>> documents, int64_t vocab_size = 256) {
  CacheRequest request;
  request.key = {7, 8};
  request.vocab_size = vocab_size;
  request.fill = [documents = std::move(documents)](TokenWriter& writer) {
    for (const auto& ids : documents) {
      writer.begin_document();
      writer.add(ids);
    }
    return Json::object();
  };
  return request;
}

std::string file_bytes(const CacheRequest& request) {
  std::string bytes;
  write_tokens(request, [&](const void* data, int64_t count) {
    bytes.append(static_cast<const char*>(data), static_cast<size_t>(count));
  });
  return bytes;
}

TokenTail tail_of(const std::string& bytes) {
  TokenTail tail;
  std::memcpy(&tail, bytes.data() + bytes.size() - sizeof(tail), sizeof(tail));
  return tail;
}

/// With the checksums of what it holds: one block, whose checksum is padded to eight bytes.
std::string sealed(std::string bytes, TokenTail tail) {
  const size_t table = bytes.size() - sizeof(tail) - 8;
  const auto all = std::as_bytes(std::span(bytes));
  const uint32_t block = crc32c(all.first(table));
  std::memcpy(bytes.data() + table, &block, sizeof(block));
  std::memcpy(bytes.data() + table + 8, &tail, sizeof(tail));
  tail.checksum = crc32c(all.subspan(table, bytes.size() - 8 - table));
  std::memcpy(bytes.data() + bytes.size() - 8, &tail.checksum, 8);
  return bytes;
}

class TokenFiles : public testing::Test {
 protected:
  TokenFiles() { std::ofstream(path(), std::ios::binary); }

  fs::path path() const { return folder_.path() / "a.tokens"; }
  std::shared_ptr<const TokenFile> open(const std::string& bytes, int64_t vocab_size = 256) {
    std::ofstream(path(), std::ios::binary) << bytes;
    return TokenFile::open(path(), {7, 8}, vocab_size, reason_);
  }
  /// Why these bytes are not taken, or "".
  std::string refusal(const std::string& bytes, int64_t vocab_size = 256) {
    reason_.clear();
    const bool taken = open(bytes, vocab_size) != nullptr;
    EXPECT_EQ(taken, reason_.empty());
    return reason_;
  }

  TemporaryFolder folder_;
  std::string reason_;
  /// 1 2 0 3: head, four tokens, three positions of the index, "{}", one checksum, tail.
  const std::string good_ = file_bytes(request_of({{1, 2}, {3}}));
};

TEST_F(TokenFiles, AreReadBackWithTwoBytesAndWithFour) {
  for (const int64_t vocab_size : {256, 70'000}) {
    const auto last = static_cast<int32_t>(vocab_size - 1);
    const auto file = open(file_bytes(request_of({{1, 2}, {last}}, vocab_size)), vocab_size);
    ASSERT_NE(file, nullptr) << reason_;
    std::vector<int64_t> ids(static_cast<size_t>(file->num_tokens()));
    file->copy(0, file->num_tokens(), ids.data());
    EXPECT_THAT(ids, ElementsAre(1, 2, 0, last));
    std::vector<std::pair<int64_t, int64_t>> places;
    file->each_document([&](int64_t begin, int64_t length) { places.emplace_back(begin, length); });
    EXPECT_THAT(places, ElementsAre(std::pair(0, 2), std::pair(3, 1)));
    EXPECT_EQ(file->counts(), Json::object());
    for (const auto& [first, count] : {std::pair(-1, 1), {0, -1}, {4, 1}})
      EXPECT_THROW(file->copy(first, count, ids.data()), InternalError) << first;
  }
}

TEST_F(TokenFiles, OfManyDocumentsAreReadInPieces) {
  constexpr int64_t kCount = 200'000;  // an index of more than a mebibyte
  const auto file =
      open(file_bytes(request_of(std::vector<std::vector<int32_t>>(kCount, std::vector(12, 5)))));
  ASSERT_NE(file, nullptr) << reason_;
  int64_t next = 0;
  file->each_document([&](int64_t begin, int64_t length) {
    ASSERT_EQ(begin, 13 * next++);
    ASSERT_EQ(length, 12);
  });
  EXPECT_EQ(next, kCount);
  EXPECT_EQ(file->num_tokens(), 13 * kCount - 1);
}

TEST_F(TokenFiles, MayEndWithAWholeBlock) {
  // 16 bytes of head, 16 of index, 8 of counts.
  const auto count = static_cast<int64_t>((kTokenBlockBytes - 40) / 2);
  const auto file = open(file_bytes(request_of({std::vector(static_cast<size_t>(count), 5)})));
  ASSERT_NE(file, nullptr) << reason_;
  EXPECT_EQ(fs::file_size(path()), kTokenBlockBytes + 8 + sizeof(TokenTail));
  EXPECT_EQ(file->num_tokens(), count);
}

TEST_F(TokenFiles, DamagedOrCutWhileInUseAreErrorsThatNameFileAndBlock) {
  const std::string bytes = file_bytes(request_of({std::vector(20'000, 5)}));
  const auto file = open(bytes);
  ASSERT_NE(file, nullptr) << reason_;
  std::vector<int64_t> ids(20'000);
  std::string damaged = bytes;
  damaged[kTokenBlockBytes + 100] = 9;
  std::ofstream(path(), std::ios::binary) << damaged;
  file->copy(0, 100, ids.data());
  EXPECT_THAT([&] { file->copy(0, 20'000, ids.data()); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("a.tokens: block 1 (bytes 16384 to 32767)"),
                                           HasSubstr("expected the checksum"))));
  fs::resize_file(path(), kTokenBlockBytes + 10);
  EXPECT_THAT([&] { file->copy(0, 20'000, ids.data()); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("a.tokens: expected"),
                                           HasSubstr("the file was cut while it was in use"))));
}

TEST_F(TokenFiles, OfAnotherKindAreNotTaken) {
  EXPECT_EQ(refusal(good_), "");
  std::string other = good_;
  other[0] = 'x';
  EXPECT_EQ(refusal(other), "it was of another kind or version");
  other = good_;
  other[offsetof(TokenHead, version)] = 1;
  EXPECT_EQ(refusal(other), "it was of another kind or version");
  EXPECT_EQ(refusal(good_, 70'000), "it was of another vocabulary");
  TokenTail tail = tail_of(good_);
  tail.magic = 0;
  EXPECT_EQ(refusal(sealed(good_, tail)), "it was cut off");
  EXPECT_EQ(refusal(good_.substr(0, 40)), "it was cut off");
  for (const TokenKey key : {TokenKey{7, 9}, {9, 8}}) {
    std::ofstream(path(), std::ios::binary) << good_;
    EXPECT_EQ(TokenFile::open(path(), key, 256, reason_), nullptr);
    EXPECT_EQ(reason_, "the files or the settings have changed");
  }
}

TEST_F(TokenFiles, WhoseSizesDoNotAgreeAreNotTaken) {
  constexpr uint64_t kHuge = 1ull << 62;
  const auto with = [&](auto change) {
    TokenTail tail = tail_of(good_);
    change(tail);
    return refusal(sealed(good_, tail));
  };
  const char* expected = "its sizes did not agree";
  EXPECT_EQ(with([](TokenTail& tail) { tail.num_tokens = kHuge; }), expected);
  EXPECT_EQ(with([](TokenTail& tail) { tail.num_documents = kHuge; }), expected);
  EXPECT_EQ(with([](TokenTail& tail) { tail.num_documents = 0; }), expected);
  EXPECT_EQ(with([](TokenTail& tail) { tail.counts_bytes = kHuge; }), expected);
  EXPECT_EQ(with([](TokenTail& tail) { tail.num_tokens += 4; }), expected);
  std::string damaged = good_;
  damaged.back() = 'x';
  EXPECT_EQ(refusal(damaged), "its checksum did not agree");
}

TEST_F(TokenFiles, MadeByHandMustHaveAnIndexThatGrowsAndCounts) {
  const size_t index = sizeof(TokenHead) + 8, counts = index + 3 * 8;
  const auto with = [&](size_t at, uint64_t number, size_t bytes) {
    std::string other = good_;
    std::memcpy(other.data() + at, &number, bytes);
    return refusal(sealed(other, tail_of(good_)));
  };
  const char* expected = "its index did not grow";
  EXPECT_EQ(with(index, 1, 8), expected);
  EXPECT_EQ(with(index + 8, 0, 8), expected);
  EXPECT_EQ(with(index + 8, 9, 8), expected);
  EXPECT_EQ(with(index + 16, 4, 8), expected);
  EXPECT_EQ(with(index + 16, 6, 8), expected);
  EXPECT_EQ(with(counts, '[' | ']' << 8, 2), "its counts were no object");
  EXPECT_THAT(with(counts, '{' | '{' << 8, 2), HasSubstr("counts: expected JSON, got malformed"));
  EXPECT_EQ(with(sizeof(TokenHead), 256, 2), "it had ids beyond the vocabulary");
}

TEST_F(TokenFiles, ThatAreNoFilesSayWhatTheyAre) {
  EXPECT_EQ(TokenFile::open(folder_.path(), {7, 8}, 256, reason_), nullptr);
  EXPECT_EQ(reason_, "it was no file");
  EXPECT_EQ(TokenFile::open(folder_.path() / "none", {7, 8}, 256, reason_), nullptr);
  EXPECT_EQ(reason_, "there was none");
  EXPECT_EQ(TokenFile::open(path() / "below", {7, 8}, 256, reason_), nullptr);
  EXPECT_EQ(reason_, "Not a directory");
  EXPECT_EQ(TokenFile::read(Descriptor(-1), path(), {7, 8}, 256, reason_), nullptr);
  EXPECT_EQ(reason_, "it was no file");
  std::ofstream(path(), std::ios::binary) << good_;
  Descriptor unreadable(::open(path().c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(TokenFile::read(std::move(unreadable), path(), {7, 8}, 256, reason_), nullptr);
  EXPECT_THAT(reason_, HasSubstr("a.tokens: cannot read tokens: Bad file descriptor"));
}

TEST_F(TokenFiles, AreNotMadeOfNothingOrOfWrongIds) {
  EXPECT_THAT([] { file_bytes(request_of({})); },
              ThrowsMessage<UsageError>(HasSubstr("every file or text in it is empty")));
  for (const int32_t id : {-1, 256})
    EXPECT_THAT([&] { file_bytes(request_of({{id}})); },
                ThrowsMessage<InternalError>(HasSubstr(fmt::format("id {} of 256", id))));
}

// ---- where they are kept ------------------------------------------------------------------------

class TokenCache : public testing::Test {
 protected:
  TokenCache() {
    request_.data_folder = folder_.path() / "data";
    fs::create_directories(request_.data_folder);
    for (const char* name : {"XDG_CACHE_HOME", "HOME", "TMPDIR"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name,
                           value != nullptr ? std::optional<std::string>(value) : std::nullopt);
    }
  }
  ~TokenCache() override {
    clear_interrupt();
    for (const auto& [name, value] : before_)
      value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }

  /// Where a file would be, as facts name it; "" for one without a name.
  std::string place() const {
    const Json file = open_or_make_tokens(request_).facts["file"];
    return file.is_null() ? "" : file.get<std::string>();
  }
  fs::path lock_file() const { return own() / "0000000000000007-making.lock"; }
  fs::path own() const { return request_.data_folder / ".moonshard"; }

  TemporaryFolder folder_;
  CacheRequest request_ = request_of({{1, 2, 3}});
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST_F(TokenCache, OfTheUserIsWhereTheEnvironmentSays) {
  std::ofstream(own()) << "a file where the folder would be";
  ::setenv("XDG_CACHE_HOME", (folder_.path() / "cache").c_str(), 1);
  const std::string name = "/moonshard/tokens/0000000000000007-0000000000000008.tokens";
  EXPECT_EQ(place(), (folder_.path() / "cache").string() + name);
  ::setenv("HOME", (folder_.path() / "home").c_str(), 1);
  for (const char* useless : {"", "relative"}) {
    ::setenv("XDG_CACHE_HOME", useless, 1);
    EXPECT_EQ(place(), (folder_.path() / "home/.cache").string() + name) << useless;
  }
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(place(), (folder_.path() / "home/.cache").string() + name);
  ::setenv("HOME", "relative", 1);
  EXPECT_EQ(place(), "");
  ::unsetenv("HOME");
  EXPECT_EQ(place(), "");
}

TEST_F(TokenCache, OfOneSettingIsKeptForTheNewestContentsOnly) {
  EXPECT_THAT(place(), EndsWith("data/.moonshard/0000000000000007-0000000000000008.tokens"));
  request_.key.setting = 9;
  const std::string other_setting = place();
  request_.key = {7, 10};
  const std::string newest = place();
  std::ofstream(own() / "0000000000000007-notes.txt") << "not ours";
  EXPECT_EQ(place(), newest);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(own()))
    if (entry.path().extension() == ".tokens") names.push_back(entry.path().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre(newest, other_setting));
  EXPECT_TRUE(fs::exists(own() / "0000000000000007-notes.txt"));
}

TEST_F(TokenCache, ThatCannotBeMadeIsAnErrorWithThePlace) {
  request_.place = (folder_.path() / "file").string();
  std::ofstream(request_.place) << "no folder";
  EXPECT_THAT([&] { place(); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("option 'cache': expected a folder"),
                                              HasSubstr(request_.place))));
  request_.place = "none";
  ::setenv("TMPDIR", "/proc", 1);
  EXPECT_THAT([&] { place(); }, ThrowsMessage<IoError>(AllOf(HasSubstr("/proc/moonshard_tokens_"),
                                                             HasSubstr("set TMPDIR to a folder"))));
  ::setenv("TMPDIR", "/no/such", 1);
  EXPECT_THAT([&] { place(); },
              ThrowsMessage<IoError>(HasSubstr("TMPDIR: expected a folder that can be written, got "
                                               "'/no/such'")));
}

TEST_F(TokenCache, WithoutRoomForItIsAnErrorThatSaysSo) {
  request_.place = "none";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);  // the write says it
  const rlimit small{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    place();
  } catch (const IoError& error) {
    message = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("cannot write: File too large; free space there or set TMPDIR"));
}

TEST_F(TokenCache, OfWhichTheCountsAreNoObjectIsRefusedOnceMade) {
  request_.fill = [](TokenWriter& writer) {
    writer.begin_document();
    writer.add({1});
    return Json::array();
  };
  const char* expected = "its counts were no object";
  for (const char* where : {"auto", "none"}) {
    request_.place = where;
    EXPECT_THAT([&] { place(); }, ThrowsMessage<IoError>(AllOf(HasSubstr("the tokens just written"),
                                                               HasSubstr(expected))));
  }
}

TEST_F(TokenCache, IsWaitedForWhileAnotherMakesIt) {
  fs::create_directories(own());
  Descriptor other(::open(lock_file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(other.number(), LOCK_EX), 0);
  request_interrupt();
  EXPECT_THROW(place(), Interrupted);  // a wait that can be left
  clear_interrupt();
  std::jthread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::flock(other.number(), LOCK_UN);
  });
  EXPECT_NE(place(), "");
}

TEST_F(TokenCache, IsMadeWithoutALockWhereThereCanBeNone) {
  fs::create_directories(lock_file());  // a folder where the lock would be
  EXPECT_THAT(place(), EndsWith(".tokens"));
  EXPECT_EQ(open_or_make_tokens(request_).facts["used"], true);
}

}  // namespace
}  // namespace moonshard::data
