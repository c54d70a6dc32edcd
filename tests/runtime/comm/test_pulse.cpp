// What a rank posts of itself, as text.
#include <gtest/gtest.h>

#include <unistd.h>

#include <fmt/format.h>

#include "runtime/comm/pulse.h"

namespace moonshard::comm {
namespace {

TEST(Pulse, ReadsWhatItWrites) {
  Pulse pulse;
  pulse.beat = 7;
  pulse.process = this_process();
  pulse.state = RankState::GaveUp;
  pulse.error = "one\ntwo\ttabs\n";
  pulse.started = 12;
  pulse.recent = {{11, "all_reduce", "a\nb\tc", true}, {12, "barrier", "", false}};
  const auto read = read_pulse(to_text(pulse));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->beat, 7);
  EXPECT_EQ(read->process.pid, ::getpid());
  EXPECT_EQ(read->process.start_time, pulse.process.start_time);
  EXPECT_EQ(read->process.machine, pulse.process.machine);
  EXPECT_EQ(read->state, RankState::GaveUp);
  EXPECT_EQ(read->error, pulse.error);
  EXPECT_EQ(read->started, 12);
  ASSERT_EQ(read->recent.size(), 2u);
  EXPECT_EQ(read->recent[0].about, "a b c");
  EXPECT_EQ(describe_position(*read), "in collective 12 (barrier)");
  EXPECT_EQ(look_at(read->process), Life::Alive);
}

TEST(Pulse, TextThatIsNoPulseIsRefused) {
  const std::string good = to_text(Pulse{});
  ASSERT_TRUE(read_pulse(good));
  for (size_t length = 0; length + 6 < good.size(); ++length)
    EXPECT_FALSE(read_pulse(good.substr(0, length))) << length;
  for (const char* wrong : {"beat\tx\nerror\t", "state\tasleep\nerror\t", "process\t1\nerror\t",
                            "collective\t1\nerror\t", "other\t1\nerror\t", "\n\n", "beat\n"})
    EXPECT_FALSE(read_pulse(wrong)) << wrong;
  std::string long_list;
  for (int i = 0; i < 1000; ++i) long_list += fmt::format("collective\t{}\tdone\tx\ty\n", i);
  EXPECT_FALSE(read_pulse(long_list + "error\t"));
}

}  // namespace
}  // namespace moonshard::comm
