// Memory snapshots: pickles of Python (protocols 2, 4, 5) and of torch's C++ pickler, and pickles
// that mean harm.
#include "tests/viewer/reader_support.h"
#include "viewer/tracing/memory_snapshot.h"
#include "viewer/tracing/pickle_reader.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

fs::path data_folder() {
  return source_folder() / "tests/data/viewer";
}

PickleData unpickle(const std::string& bytes, const PickleLimits& limits = {}) {
  TricklingSource source(bytes, 3);
  return read_pickle(source, "text", limits);
}

// Three segments of six blocks; sizes 512 times 1 to 7 in turn.
TEST(SnapshotReader, sums_up_snapshots_of_python_and_of_torch_alike) {
  for (const char* name :
       {"snapshot_protocol2.pickle", "snapshot_protocol4.pickle", "snapshot_protocol5.pickle",
        "snapshot_torch.pickle", "snapshot_torch_tagged.pickle"}) {
    const MemorySnapshot snapshot = read_snapshot(data_folder() / name);
    EXPECT_EQ(snapshot.reserved, 33792) << name;
    EXPECT_EQ(snapshot.allocated, 15872);
    EXPECT_EQ(snapshot.active, 22016);
    EXPECT_EQ(snapshot.requested, 15764);
    EXPECT_EQ(snapshot.free_in_segments, 33792 - 22016);
    EXPECT_EQ(snapshot.largest_free, 3584);
    EXPECT_EQ(snapshot.num_segments, 3u);
    EXPECT_EQ(snapshot.num_blocks, 18u);
    ASSERT_EQ(snapshot.segments.size(), 3u);
    EXPECT_EQ(snapshot.segments[0].total, 11776) << "largest first";
    EXPECT_EQ(snapshot.segments[0].kind, "large");
    EXPECT_TRUE(snapshot.segments[1].expandable);
    EXPECT_EQ(snapshot.segments[2].address, 0x7f0000000000u);
    ASSERT_FALSE(snapshot.largest.empty());
    EXPECT_EQ(snapshot.largest[0].size, 3584);
    EXPECT_EQ(snapshot.largest[0].where,
              "moonshard::models::Linear::forward (model.cpp:41)\n"
              "moonshard::train::step (step.cpp:12)");
    EXPECT_EQ(snapshot.num_events, snapshot.history_bytes.size());
    ASSERT_EQ(snapshot.actions.size(), 3u);
    EXPECT_EQ(snapshot.actions[0].action, "alloc");
    // What is allocated after the last event is what the segments hold.
    EXPECT_EQ(snapshot.history_bytes.back(), snapshot.allocated);
  }
}

TEST(SnapshotReader, refuses_each_beginning_of_a_file) {
  TemporaryFolder root;
  const std::string bytes = read_bytes(data_folder() / "snapshot_protocol4.pickle");
  for (size_t size = 0; size < bytes.size(); size += size < 200 ? 1 : 13) {
    fs::remove(root.path() / "cut.pickle");  // a new file is written faster than an old one
    write_text(root.path() / "cut.pickle", bytes.substr(0, size));
    EXPECT_FALSE(io_error_of([&] { read_snapshot(root.path() / "cut.pickle"); }).empty()) << size;
  }
}

TEST(SnapshotReader, survives_each_byte_turned_around) {
  TemporaryFolder root;
  const std::string bytes = read_bytes(data_folder() / "snapshot_torch.pickle");
  size_t refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(~damaged[i]);
    fs::remove(root.path() / "bad.pickle");
    write_text(root.path() / "bad.pickle", damaged);
    refused += io_error_of([&] { read_snapshot(root.path() / "bad.pickle"); }).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, bytes.size() / 10) << "and memory was not read beyond its end (sanitizers)";
}

TEST(SnapshotReader, refuses_other_pickles_pipes_and_folders) {
  TemporaryFolder root;
  write_text(root.path() / "other.pickle", "\x80\x02}.");
  make_pipe(root.path() / "pipe.pickle");
  fs::create_directories(root.path() / "folder.pickle");
  write_text(root.path() / "zip.pickle", "PK\x03\x04");
  for (const char* name : {"other", "pipe", "folder", "zip", "nothing"}) {
    const fs::path path = root.path() / (std::string(name) + ".pickle");
    EXPECT_FALSE(io_error_of([&] { read_snapshot(path); }).empty()) << name;
  }
}

TEST(PickleReader, never_runs_what_a_pickle_wants_to_run) {
  TemporaryFolder root;
  const std::string witness = (root.path() / "was_run").string();
  // os.system("touch …"), in the words of protocol 2.
  const std::string command = "touch " + witness;
  std::string bytes =
      "\x80\x02"
      "cos\nsystem\nX";
  bytes += static_cast<char>(command.size());
  bytes += std::string("\0\0\0", 3) + command + "\x85R.";
  const PickleData data = unpickle(bytes);
  EXPECT_EQ(data.text(data.root()), command) << "a call stands for its argument";
  EXPECT_FALSE(fs::exists(witness));
}

TEST(PickleReader, reads_numbers_of_all_sizes) {
  static constexpr char kBytes[] =
      "\x80\x02(K\x07M\x01\x02J\xff\xff\xff\xff\x8a\x00\x8a\x01\x80"
      "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"
      "G\x3f\xf8\x00\x00\x00\x00\x00\x00\x88Nl.";
  const PickleData data = unpickle(std::string(kBytes, sizeof kBytes - 1));
  const std::vector<PickleValue>& items = data.items(data.root());
  const double expected[] = {7, 513, -1, 0, -128, -0x1p63, 0x1p63, 1.5, 1, 0};
  ASSERT_EQ(items.size(), std::size(expected));
  for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(data.number(items[i]), expected[i]) << i;
}

TEST(PickleReader, refuses_stacks_that_are_empty_and_marks_that_are_missing) {
  for (const char* code : {".",     "a.",    "s.",    "e.",    "u.",     "t.",     "l.",    "d.",
                           "R.",    "b.",    "0.",    "1.",    "2.",     "\x85.",  "\x86.", "\x87.",
                           "\x81.", "\x92.", "\x93.", "\x94.", "q\x01.", "h\x01.", "](a.",  "](s.",
                           "}(Nu.", "(.",    "]N(a.", "Q.",    "cos\n",  "\xff",   "I1\n."}) {
    EXPECT_FALSE(io_error_of([&] { unpickle(std::string("\x80\x02") + code); }).empty()) << code;
  }
  EXPECT_FALSE(io_error_of([] { unpickle("\x80\x06N."); }).empty());
  EXPECT_FALSE(io_error_of([] { unpickle("(lp0\n."); }).empty()) << "protocol 0";
}

TEST(PickleReader, lengths_that_the_file_does_not_have_cost_nothing) {
  const std::string huge("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", 11);
  EXPECT_TRUE(contains(io_error_of([&] { unpickle(huge); }), "a text of"));
  const std::string absent("\x80\x02X\x00\x00\xff\x00x", 8);
  EXPECT_TRUE(contains(io_error_of([&] { unpickle(absent); }), "end of the file"));
  const std::string far("\x80\x02Nr\xff\xff\xff\xff.", 9);
  EXPECT_EQ(io_error_of([&] { unpickle(far); }), "") << "a far memory is one entry";
}

TEST(PickleReader, bounds_what_it_builds) {
  PickleLimits limits;
  limits.max_values = 1000;
  EXPECT_TRUE(
      contains(io_error_of([&] { unpickle("\x80\x02" + std::string(2000, ']') + ".", limits); }),
               "more than 1000 values"));
  EXPECT_TRUE(
      contains(io_error_of([&] { unpickle("\x80\x02" + std::string(2000, '(') + ".", limits); }),
               "more than 1000 values"));
  EXPECT_TRUE(
      contains(io_error_of([&] { unpickle("\x80\x02N" + std::string(2000, '2') + ".", limits); }),
               "more than 1000 values"));
}

// A list that holds the same segment again and again: visits are counted, not only values.
TEST(SnapshotReader, a_small_file_that_repeats_itself_ends) {
  TemporaryFolder root;
  std::string bytes = "\x80\x02}X\x08";
  bytes += std::string("\0\0\0", 3) + "segments](";
  std::string segment = "}X\x06";
  segment += std::string("\0\0\0", 3) + "blocks](}q\x01";
  for (int i = 0; i < 20'000; ++i) segment += "h\x01";
  segment += "esq\x02";
  bytes += segment;
  for (int i = 0; i < 20'000; ++i) bytes += "h\x02";
  bytes += "es.";
  write_text(root.path() / "again.pickle", bytes);
  const MemorySnapshot snapshot = read_snapshot(root.path() / "again.pickle");
  EXPECT_LE(snapshot.num_blocks, 5'000'000u);
  ASSERT_EQ(snapshot.problems.size(), 1u);
}

}  // namespace
}  // namespace moonshard::viewer
