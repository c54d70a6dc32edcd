// The job's store: what it keeps, whom it lets in, and what its clients say when it is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/job_store.h"
#include "runtime/comm/store_socket.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::comm {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

StoreDeadline in_seconds(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

class JobStore : public testing::TestWithParam<bool> {
 protected:
  StorePlace place() const {
    return GetParam() ? StorePlace{folder_.path() / "a.store", "", 0}
                      : StorePlace{{}, "127.0.0.1", 0};
  }
  TemporaryFolder folder_;
};

TEST_P(JobStore, KeepsWhatItIsGivenForAllClients) {
  const StoreServer server(place(), "token");
  StoreClient one(server.place(), "token", 5), other(server.place(), "token", 5);
  const std::string bytes("\0binary\xff", 8);
  one.set("a", bytes);
  EXPECT_EQ(other.read("a"), bytes);
  EXPECT_EQ(other.read("b"), std::nullopt);
  EXPECT_TRUE(other.has_all({"a"}));
  EXPECT_FALSE(other.has_all({"a", "b"}));
  EXPECT_EQ(one.add("n", 3), 3);
  EXPECT_EQ(other.add("n", -5), -2);
  EXPECT_EQ(other.count(), 2);
  EXPECT_EQ(one.compare_set("c", "", "first"), "first");
  EXPECT_EQ(other.compare_set("c", "", "second"), "first");
  EXPECT_EQ(other.compare_set("c", "first", "third"), "third");
  EXPECT_EQ(other.compare_set("d", "some", "new"), "some");
  EXPECT_TRUE(other.remove("c"));
  EXPECT_FALSE(other.remove("c"));
  EXPECT_EQ(one.read_all({"a", "b", "n"}),
            (std::vector<std::optional<std::string>>{bytes, std::nullopt, "-2"}));
  EXPECT_TRUE(one.read_all({}).empty());
  const std::string large(5 << 20, 'x');
  one.set("large", large);
  EXPECT_EQ(other.read("large"), large);
}

TEST_P(JobStore, SetsWhatAClientLeavesBehindWhenItEnds) {
  const StoreServer server(place(), "token");
  StoreClient stays(server.place(), "token", 5);
  {
    StoreClient ends(server.place(), "token", 5);
    ends.leave_behind("gone/1", "ended");
    EXPECT_EQ(stays.read("gone/1"), std::nullopt);
  }
  for (int i = 0; i < 500 && !stays.read("gone/1"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(stays.read("gone/1"), "ended");
}

// A connection that breaks in the middle of the greeting is no refusal: the network may have lost
// it.
TEST_P(JobStore, IsAskedAgainWhenAGreetingBreaks) {
  StorePlace at = place();
  auto broken = listen_at(at);
  std::thread breaks([&] {
    const Descriptor socket(::accept(broken.number(), nullptr, nullptr));
    send_all(socket.number(), kGreeting.substr(0, 5), in_seconds(5));
    broken.close();
    if (!at.socket.empty()) ::unlink(at.socket.c_str());
  });
  StorePlace next = at;
  std::unique_ptr<StoreServer> server;
  std::thread comes([&] {
    breaks.join();
    server = std::make_unique<StoreServer>(next, "token");
  });
  const StoreClient client(at, "token", 10);
  comes.join();
}

TEST_P(JobStore, CountsRightWithManyClientsAtOnce) {
  const StoreServer server(place(), "token");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      StoreClient client(server.place(), "token", 30);
      for (int n = 0; n < 200; ++n) client.add("n", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(StoreClient(server.place(), "token", 5).read("n"), "1600");
}

TEST_P(JobStore, LetsNobodyInWhoDoesNotKnowTheToken) {
  const StoreServer server(place(), "token");
  EXPECT_THAT([&] { StoreClient(server.place(), "another", 5); },
              ThrowsMessage<IoError>(HasSubstr("belongs to another job")));
  // A request instead of a proof, and a proof that was heard on another connection.
  std::string reason;
  for (const bool replays : {false, true}) {
    const Descriptor stranger = connect_to(server.place(), reason);
    ASSERT_GE(stranger.number(), 0) << reason;
    const std::string hello =
        receive(stranger.number(), kGreeting.size() + kNonceBytes, in_seconds(5));
    EXPECT_EQ(hello.find("token"), std::string::npos);
    const std::string nonce(kNonceBytes, 'c');
    send_all(stranger.number(),
             replays ? nonce + proof_of("client", "token", std::string(kNonceBytes, 's'), nonce)
                     : pack({"R", "a"}) + std::string(200, 'x'),
             in_seconds(5));
    EXPECT_THROW(receive(stranger.number(), 1, in_seconds(5)), IoError);
  }
  EXPECT_EQ(StoreClient(server.place(), "token", 5).count(), 0);  // it still serves its own
}

// Whoever knows the token may still send nonsense: the connection is closed, others are served.
TEST_P(JobStore, ClosesConnectionsThatSendNonsense) {
  const StoreServer server(place(), "token");
  for (const std::string& nonsense :
       {std::string("\xff\xff\xff\xff", 4), std::string("\x02\0\0\0ab", 6), pack({"?"}),
        pack({"S", "a"}), pack({}), std::string("\x05\0\0\0\x09\0\0\0a", 9)}) {
    std::string reason;
    const Descriptor socket = connect_to(server.place(), reason);
    const std::string hello =
        receive(socket.number(), kGreeting.size() + kNonceBytes, in_seconds(5));
    const std::string nonce = make_nonce();
    send_all(socket.number(),
             nonce + proof_of("client", "token", hello.substr(kGreeting.size()), nonce),
             in_seconds(5));
    receive(socket.number(), kProofBytes, in_seconds(5));
    send_all(socket.number(), nonsense, in_seconds(5));
    EXPECT_THROW(receive(socket.number(), 1, in_seconds(5)), IoError);
  }
  EXPECT_EQ(StoreClient(server.place(), "token", 5).count(), 0);
}

// A real process, killed; its client gets an error in words, at once and ever after.
TEST_P(JobStore, IsMissedInWordsWhenItsHostIsKilled) {
  StorePlace at = place();
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t host = ::fork();
  if (host == 0) {
    const StoreServer server(at, "token");
    const uint16_t port = server.place().port;
    if (::write(pipe_ends[1], &port, sizeof port) != sizeof port) ::_exit(1);
    while (true) ::pause();
  }
  ASSERT_EQ(::read(pipe_ends[0], &at.port, sizeof at.port), ssize_t{sizeof at.port});
  StoreClient client(at, "token", 5);
  client.set("a", "b");
  ::kill(host, SIGKILL);
  ::waitpid(host, nullptr, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT([&] { client.set("a", "c"); },
                ThrowsMessage<IoError>(AnyOf(HasSubstr("closed by the other side"),
                                             HasSubstr("reset"), HasSubstr("Broken pipe"))));
  }
  // Its socket is in nobody's way.
  const StoreServer next(at, "token");
  EXPECT_EQ(StoreClient(next.place(), "token", 5).count(), 0);
  EXPECT_THROW(StoreServer(next.place(), "token"), IoError);  // but a live one is not pushed aside
}

INSTANTIATE_TEST_SUITE_P(Places, JobStore, testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "UnixSocket" : "Tcp");
});

}  // namespace
}  // namespace moonshard::comm
