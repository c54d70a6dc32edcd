// Files of untrusted folders, and what they hold when it is compressed.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/input/byte_source.h"
#include "runtime/input/open_file.h"
#include "tests/viewer/reader_support.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

std::string read_to_the_end(ByteSource& source) {
  std::string text;
  char buffer[7];
  for (size_t count = source.read(buffer, 7); count > 0; count = source.read(buffer, 7))
    text.append(buffer, count);
  return text;
}

TEST(InsideFolder, opens_nothing_that_leads_out) {
  TemporaryFolder root, outside;
  write_text(outside.path() / "secret", "x");
  write_text(root.path() / "in/file", "inside");
  fs::create_symlink(outside.path(), root.path() / "out");
  fs::create_symlink(root.path() / "in", root.path() / "link");
  const InsideFolder inside(root.path());
  const std::string absolute = (outside.path() / "secret").string();
  const std::string above = "../" + outside.path().filename().string() + "/secret";
  for (const std::string& path : {absolute, above, std::string("out/secret")})
    EXPECT_TRUE(contains(io_error_of([&] { inside.open(path); }), "leads out of the run folder"))
        << path;
  EXPECT_EQ(inside.open("link/file")->read_all(100), "inside") << "a link may stay inside";
  EXPECT_EQ(inside.open("in/../in/file")->read_all(100), "inside");
  EXPECT_FALSE(inside.open("in/none").has_value());
  errno = 0;
  EXPECT_FALSE(inside.open("").has_value()) << "there is no such file";
  EXPECT_FALSE(inside.open("in/file/below").has_value());
  EXPECT_TRUE(
      contains(io_error_of([&] { inside.open(std::string(300, 'x')); }), "File name too long"));
  EXPECT_FALSE(InsideFolder(root.path() / "none").open("file").has_value());
}

TEST(InsideFolder, lists_plain_files_with_an_ending) {
  TemporaryFolder root, outside;
  write_text(outside.path() / "x", "x");
  for (const char* name : {"b.csv", "a.csv", "a.txt", "c.moonshard-tmp.1.csv"})
    write_text(root.path() / "tables" / name, "x");
  fs::create_symlink("a.csv", root.path() / "tables/link.csv");
  fs::create_symlink(outside.path() / "x", root.path() / "tables/out.csv");
  fs::create_directories(root.path() / "tables/folder.csv");
  const InsideFolder inside(root.path());
  EXPECT_EQ(inside.names("tables", {".csv"}),
            (std::vector<std::string>{"a.csv", "b.csv", "link.csv"}));
  EXPECT_TRUE(inside.names("none", {".csv"}).empty());
  EXPECT_TRUE(inside.names("tables/a.csv", {".csv"}).empty()) << "a file has no names in it";
}

TEST(InsideFolder, stamps_plain_files_only) {
  TemporaryFolder root;
  write_text(root.path() / "file", "four");
  fs::create_symlink("file", root.path() / "link");
  const InsideFolder inside(root.path());
  EXPECT_EQ(inside.stamp("file")->bytes, 4);
  for (const char* name : {"none", "link", ""}) EXPECT_FALSE(inside.stamp(name)) << name;
}

TEST(OpenFile, says_what_the_system_says) {
  TemporaryFolder root;
  write_text(root.path() / "file", "text");
  char byte = 0;
  OpenFile unreadable(Descriptor(::open((root.path() / "file").c_str(), O_WRONLY)), "file", 4);
  EXPECT_EQ(io_error_of([&] { unreadable.read(&byte, 1); }),
            "file: cannot read: Bad file descriptor");
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor other(ends[1]);
  OpenFile pipe(Descriptor(ends[0]), "pipe", 0);
  EXPECT_EQ(io_error_of([&] { pipe.seek(1); }), "pipe: cannot read: Illegal seek");
}

TEST(OpenFile, paths_and_stamps_are_of_what_is_there) {
  TemporaryFolder root;
  write_text(root.path() / "file", "text");
  EXPECT_EQ(whole_path("/a/b"), "/a/b");
  EXPECT_EQ(whole_path("b"), (fs::current_path() / "b").string());
  EXPECT_EQ(whole_path(""), "");
  const uint64_t before = stamp_of(root.path() / "file");
  EXPECT_NE(before, 0u);
  EXPECT_EQ(stamp_of(root.path() / "file"), before);
  fs::resize_file(root.path() / "file", 5);
  EXPECT_NE(stamp_of(root.path() / "file"), before);
  EXPECT_NE(stamp_of(root.path()), 0u) << "a folder has a time";
  EXPECT_EQ(stamp_of(root.path() / "none"), 0u);
}

TEST(InflatedSource, takes_a_source_of_unknown_size_and_refuses_what_needs_a_dictionary) {
  TemporaryFolder root;
  write_text(root.path() / "text", "some text, some text");
  const std::string packed = read_bytes(gzip(root.path() / "text"));
  const std::string error = io_error_of([&] {
    const auto source = inflated(std::make_unique<TricklingSource>(packed, 3), "text.gz");
    EXPECT_EQ(read_to_the_end(*source), "some text, some text");
  });
  if (contains(error, "built without zlib")) GTEST_SKIP() << error;
  EXPECT_EQ(error, "");
  const std::string dictionary("\x78\xbb\x01\x02\x03\x04", 6);
  const auto source = inflated(std::make_unique<MemorySource>(dictionary), "text.gz");
  EXPECT_EQ(io_error_of([&] { read_to_the_end(*source); }),
            "text.gz: expected gzip data, got a damaged file (it is damaged)");
}

TEST(ReadAheadSource, ends_once_and_for_all) {
  const std::string text(100, 'x');
  const auto source = read_ahead(std::make_unique<MemorySource>(text));
  EXPECT_EQ(read_to_the_end(*source), text);
  EXPECT_EQ(read_to_the_end(*source), "");
}

}  // namespace
}  // namespace moonshard::viewer
