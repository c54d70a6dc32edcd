// Where the lines of index.jsonl begin: behind parts of lines, and in files read piece by piece.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include <fmt/format.h>

#include "runtime/records/point_index.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

class PointIndexPlaces : public ::testing::Test {
 protected:
  void make_record(const std::string& id) {
    fs::create_directories(folder_.path() / "points" / id);
    std::ofstream(folder_.path() / "points" / id / "result.json") << "{}";
  }
  fs::path file() const { return folder_.path() / "index.jsonl"; }
  void append(const std::string& text) { std::ofstream(file(), std::ios::app) << text; }
  static IndexEntry entry(const std::string& id, double score, const std::string& error = "") {
    return {id, "ok", error, "", Json::object(), {{"score", score}}, {}};
  }

  const TemporaryFolder folder_;
};

// The index that added a line and one that reads the file must find it at the same place.
TEST_F(PointIndexPlaces, ALineBehindAPartOfOneIsFoundByItsWriterAndByReaders) {
  make_record("aa");
  make_record("bb");
  append(R"({"id":"bb","status":"ok","byt)");  // its writer was killed
  PointIndex index(folder_.path());
  index.add(entry("aa", 1.5));
  index.add(entry("bb", 2.5));
  for (const PointIndex& reader : {index, PointIndex(folder_.path())}) {
    ASSERT_TRUE(reader.find("aa").has_value());
    EXPECT_EQ(reader.find("aa")->metrics, (Json{{"score", 1.5}}));
    ASSERT_TRUE(reader.find("bb").has_value());
    EXPECT_EQ(reader.find("bb")->metrics, (Json{{"score", 2.5}}));
  }
}

TEST_F(PointIndexPlaces, ABlankLineMovesThoseBehindItByOne) {
  make_record("aa");
  append("\n");
  PointIndex index(folder_.path());
  index.add(entry("aa", 1.5));
  for (const PointIndex& reader : {index, PointIndex(folder_.path())}) {
    ASSERT_TRUE(reader.find("aa").has_value());
    EXPECT_EQ(reader.find("aa")->metrics, (Json{{"score", 1.5}}));
  }
  const std::string text = read_text_file(file(), 4096);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << "no other blank line";
}

// The file is read a MiB at a time; lines that lie across the ends of pieces are whole.
TEST_F(PointIndexPlaces, AnIndexOfSeveralPiecesHasAllItsLines) {
  PointIndex index(folder_.path());
  const int points = 25;
  for (int i = 0; i < points; ++i) {
    const std::string id = fmt::format("p{}", i);
    make_record(id);
    index.add(entry(id, i, std::string(150'000 + static_cast<size_t>(i), 'x')));
  }
  ASSERT_GT(fs::file_size(file()), 3u << 20);
  const PointIndex reader(folder_.path());
  for (int i = 0; i < points; ++i) {
    const auto found = reader.find(fmt::format("p{}", i));
    ASSERT_TRUE(found.has_value()) << i;
    EXPECT_EQ(found->metrics, (Json{{"score", i}}));
    EXPECT_EQ(found->error.size(), 150'000u + static_cast<size_t>(i));
  }
}

}  // namespace
}  // namespace moonshard::records
