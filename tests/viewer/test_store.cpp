// The store: what was read of a folder stays when the folder goes.
#include "viewer/store.h"

#include <gtest/gtest.h>

#include "tests/viewer/sample_run.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

TEST(Store, KeepsWhatWasReadOfAFolderThatWentAway) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  write_text(folder / "points/p0/log.rank0.txt", "step 1\n");
  const std::string log = "points/p0/log.rank0.txt";
  Store store;
  const auto ask = [&] {
    store.detail(folder.string(), "p0");
    store.file<std::string>({ReadRequest::Kind::Log, folder.string(), {log}});
    store.wait_idle();
  };
  ask();
  const auto before = store.detail(folder.string(), "p0");
  ASSERT_NE(before.value, nullptr);
  ASSERT_FALSE(before.value->logs.empty());
  fs::remove_all(folder);
  store.refresh();
  ask();
  const auto detail = store.detail(folder.string(), "p0");
  ASSERT_NE(detail.value, nullptr);
  EXPECT_EQ(detail.value->logs, before.value->logs);
  const auto text = store.file<std::string>({ReadRequest::Kind::Log, folder.string(), {log}});
  ASSERT_NE(text.value, nullptr);
  EXPECT_EQ(*text.value, "step 1\n");
}

TEST(Store, ReadsAgainWhatComesBackDifferent) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  const std::string log = "points/p0/log.rank0.txt";
  write_text(folder / log, "old\n");
  Store store;
  const auto read = [&] {
    store.file<std::string>({ReadRequest::Kind::Log, folder.string(), {log}});
    store.wait_idle();
    return *store.file<std::string>({ReadRequest::Kind::Log, folder.string(), {log}}).value;
  };
  EXPECT_EQ(read(), "old\n");
  fs::remove(folder / log);
  store.refresh();
  EXPECT_EQ(read(), "old\n");
  write_text(folder / log, "new and longer\n");
  store.refresh();
  EXPECT_EQ(read(), "new and longer\n");
}

}  // namespace
}  // namespace moonshard::viewer
