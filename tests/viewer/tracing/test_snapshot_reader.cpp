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

// The parts of a pickle, in the words of protocol 2.
std::string little(uint64_t number, size_t bytes) {
  return std::string(reinterpret_cast<const char*>(&number), bytes);
}
std::string pickled_text(const std::string& letters) {
  return "X" + little(letters.size(), 4) + letters;
}
std::string pickled_number(uint64_t value) {
  return std::string("\x8a\x08") + little(value, 8);
}
std::string pickled_list(const std::vector<std::string>& items) {
  std::string bytes = "](";
  for (const std::string& item : items) bytes += item;
  return bytes + "e";
}
std::string pickled_dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string bytes = "}(";
  for (const auto& [key, value] : entries) bytes += pickled_text(key) + value;
  return bytes + "u";
}
std::string pickled_event(const std::string& action, uint64_t address, uint64_t bytes,
                          const std::string& frames = "]", const std::string& owner = "N") {
  return pickled_dict({{"action", pickled_text(action)},
                       {"size", pickled_number(bytes)},
                       {"addr", pickled_number(address)},
                       {"frames", frames},
                       {"user_metadata", owner}});
}
MemorySnapshot snapshot_of(const std::vector<std::string>& segments,
                           const std::vector<std::string>& events) {
  const std::string bytes =
      "\x80\x02" +
      pickled_dict({{"segments", pickled_list(segments)},
                    {"device_traces", pickled_list({pickled_list(events)})}}) +
      ".";
  return read_snapshot(OpenFile(bytes, "snapshot.pickle"));
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

TEST(PickleReader, names_texts_and_files_have_a_limit) {
  EXPECT_TRUE(contains(io_error_of([] {
                         unpickle(
                             "\x80\x02"
                             "c" +
                             std::string(4097, 'x') + "\ny\n.");
                       }),
                       "a name that is too long"));
  PickleLimits limits;
  limits.max_texts_bytes = 10;
  EXPECT_TRUE(contains(
      io_error_of([&] { unpickle("\x80\x02" + pickled_text("12345678901") + ".", limits); }),
      "more than 10 bytes of text"));
  limits = {};
  limits.max_bytes = 100;
  EXPECT_TRUE(contains(io_error_of([&] {
                         unpickle("\x80\x02" + pickled_text(std::string(100, 'x')) + ".", limits);
                       }),
                       "more than 100 bytes"));
  const std::string large(2'000'000, 'x');
  const PickleData data = unpickle("\x80\x02" + pickled_text(large) + ".");
  EXPECT_EQ(data.text(data.root()), large);
}

TEST(SnapshotReader, keeps_the_largest_of_many) {
  std::vector<std::string> segments, blocks;
  for (uint64_t i = 1; i <= 2100; ++i)
    segments.push_back(pickled_dict({{"total_size", pickled_number(i)}}));
  for (uint64_t i = 1; i <= 150; ++i)
    blocks.push_back(
        pickled_dict({{"size", pickled_number(i)}, {"state", pickled_text("active_allocated")}}));
  blocks.push_back(pickled_number(7));                                                  // no block
  blocks.push_back(pickled_dict({{"size", std::string("G\x7f\xf0\0\0\0\0\0\0", 9)}}));  // infinite
  segments.push_back(
      pickled_dict({{"total_size", pickled_number(9999)}, {"blocks", pickled_list(blocks)}}));
  const MemorySnapshot snapshot = snapshot_of(segments, {});
  EXPECT_EQ(snapshot.num_segments, 2101u);
  ASSERT_EQ(snapshot.segments.size(), 1000u);
  EXPECT_EQ(snapshot.segments[0].total, 9999);
  EXPECT_EQ(snapshot.segments[1].total, 2100);
  EXPECT_EQ(snapshot.num_blocks, 151u);
  ASSERT_EQ(snapshot.largest.size(), 100u);
  EXPECT_EQ(snapshot.largest[0].size, 150);
  EXPECT_EQ(snapshot.largest[99].size, 51);
}

TEST(SnapshotReader, keeps_the_largest_allocations_of_a_long_history) {
  std::vector<std::string> events;
  for (uint64_t i = 1; i <= 8100; ++i) events.push_back(pickled_event("alloc", i, i));
  const MemorySnapshot snapshot = snapshot_of({}, events);
  EXPECT_EQ(snapshot.num_allocations, 8100u);
  ASSERT_EQ(snapshot.allocations.size(), 8000u);
  EXPECT_EQ(snapshot.allocations[0].bytes, 101);
}

TEST(SnapshotReader, keeps_as_many_allocations_of_one_size_as_there_is_room_for) {
  std::vector<std::string> events{pickled_event("alloc", 1, 100), pickled_event("alloc", 2, 900)};
  for (uint64_t i = 3; i <= 8103; ++i) events.push_back(pickled_event("alloc", i, 512));
  const MemorySnapshot snapshot = snapshot_of({}, events);
  EXPECT_EQ(snapshot.num_allocations, 8103u);
  ASSERT_EQ(snapshot.allocations.size(), 8000u);
  EXPECT_EQ(snapshot.allocations[0].bytes, 900);
  EXPECT_EQ(snapshot.allocations[7999].bytes, 512);
}

TEST(SnapshotReader, bounds_sites_actions_and_stacks) {
  std::vector<std::string> events;
  for (uint64_t i = 1; i <= 4100; ++i) {
    const std::string frame = pickled_dict({{"name", pickled_text("f" + std::to_string(i))}});
    events.push_back(pickled_event("alloc", i, 512, pickled_list({frame})));
  }
  for (int i = 0; i < 120; ++i)
    events.push_back(pickled_event("action " + std::to_string(i), 0, 1));
  const MemorySnapshot many = snapshot_of({}, events);
  EXPECT_EQ(many.num_allocations, 4100u);
  EXPECT_LE(many.sites.size(), 4001u);
  EXPECT_EQ(many.sites[many.allocations.back().site].owner, "not recorded");
  EXPECT_EQ(many.actions.size(), 100u);

  const std::string own = pickled_dict({{"name", pickled_text("unwind")}}),
                    said = pickled_dict({{"name", pickled_text("step")}});
  std::vector<std::string> deep(200, own);
  deep.push_back(said);
  const MemorySnapshot stacks = snapshot_of(
      {}, {pickled_event("alloc", 1, 512, pickled_list(deep)),
           pickled_event("alloc", 2, 512, pickled_list({own, said})),
           pickled_event("alloc", 3, 512, pickled_list({said}), pickled_text("gradients"))});
  ASSERT_EQ(stacks.sites.size(), 3u);
  EXPECT_EQ(stacks.sites[0].where, "") << "so far down nobody looks";
  EXPECT_EQ(stacks.sites[1].where, "step");
  EXPECT_EQ(stacks.sites[2].owner, "gradients") << "what the file says counts";
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
  bytes += "es" + pickled_text("device_traces") +
           pickled_list({pickled_list({pickled_event("alloc", 1, 512)})}) + "s.";
  write_text(root.path() / "again.pickle", bytes);
  const MemorySnapshot snapshot = read_snapshot(root.path() / "again.pickle");
  EXPECT_LE(snapshot.num_blocks, 5'000'000u);
  ASSERT_EQ(snapshot.problems.size(), 1u);
  ASSERT_EQ(snapshot.sites.size(), 1u);
  EXPECT_EQ(snapshot.sites[0].owner, "not recorded") << "no stack is looked at any more";
}

}  // namespace
}  // namespace moonshard::viewer
