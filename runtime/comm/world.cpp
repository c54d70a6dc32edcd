#include "runtime/comm/world.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "runtime/base/check.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/own_address.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/watchdog.h"
#include "runtime/core/device.h"
#include "runtime/core/random_words.h"

namespace moonshard::comm {
namespace {

class SingleWorld : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::shared_ptr<Communicator> group(const std::string&, c10::Device) override {
    return make_single();
  }
  std::shared_ptr<Communicator> part_group(const std::string&, c10::Device, int, int) override {
    return make_single();
  }
};

class FakeWorld : public World {
 public:
  FakeWorld(int size, std::string link) : size_(size), link_(std::move(link)) { is_fake_ = true; }
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::shared_ptr<Communicator> group(const std::string& name, c10::Device device) override {
    std::shared_ptr<Communicator> made = make_fake(0, size_, link_, device, port_);
    if (name != "train") made->set_name(name);
    return made;
  }
  std::shared_ptr<Communicator> part_group(const std::string& name, c10::Device device, int rank,
                                           int size) override {
    std::shared_ptr<Communicator> made = make_fake(rank, size, link_, device, port_);
    made->set_name(name);
    return made;
  }

 private:
  int size_;
  std::string link_;
  std::shared_ptr<FakePort> port_ = make_fake_port();
};

class JobWorld : public World {
 public:
  explicit JobWorld(const RankEnvironment& environment)
      : environment_(environment),
        timeout_s_(collective_timeout_s()),
        rendezvous_(environment),
        // Gloo times out first and throws where the collective is waited for; the watchdog is for
        // transports that wait for ever.
        watchdog_(rendezvous_.board(),
                  {environment.rank, environment.world, timeout_s_ + 1, 0.5, {}, [this] {
                     rendezvous_.let_others_read();
                   }}) {}
  int rank() const override { return environment_.rank; }
  int size() const override { return environment_.world; }

  std::shared_ptr<Communicator> group(const std::string& name, c10::Device device) override {
    return connect(name, device, environment_.rank, environment_.world, &watchdog_);
  }
  std::shared_ptr<Communicator> part_group(const std::string& name, c10::Device device, int rank,
                                           int size) override {
    return connect(name, device, rank, size, &watchdog_);
  }
  std::shared_ptr<Communicator> background_group(const std::string& name) override {
    return connect(name, c10::kCPU, environment_.rank, environment_.world, nullptr);
  }

  int64_t agree_on_seed(int64_t own) {
    const auto bytes = [](const std::string& text) {
      return std::vector<uint8_t>(text.begin(), text.end());
    };
    const std::vector<uint8_t> agreed =
        rendezvous_.store()->compareSet("moonshard/seed", bytes(""), bytes(std::to_string(own)));
    return std::stoll(std::string(agreed.begin(), agreed.end()));
  }

  void say_goodbye(const std::string& error) {
    if (error.empty()) return;
    watchdog_.post_failure(error);
    rendezvous_.let_others_read();
  }

 private:
  std::shared_ptr<Communicator> connect(const std::string& name, c10::Device device, int rank,
                                        int size, Watchdog* watchdog) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Communicator>& known = groups_[name + "/" + device.str()];
    if (known != nullptr) return known;
    GroupOptions options;
    options.name = name;
    options.rank = rank;
    options.size = size;
    options.timeout_s = timeout_s_;
    options.watchdog = watchdog;
    options.device = device;
    const int64_t sequence = watchdog_.begin("connect", name, [] { return false; });
    try {
      if (device.is_cuda()) {
        share_device_if_needed();
        known = make_nccl(rendezvous_.store(), options);
      } else {
        options.address = own_address();
        known = make_gloo(rendezvous_.store(), options);
      }
    } catch (const UsageError&) {
      throw;
    } catch (const std::exception& error) {
      const std::string text = error.what();  // LibTorch's carry a C++ stack
      throw CommError(watchdog_.explain(sequence, text.substr(0, text.find('\n'))));
    }
    if (name != "train") known->set_name(name);
    if (watchdog == nullptr) known->set_in_background();
    watchdog_.end(sequence);
    return known;
  }

  // NCCL refuses two ranks on one GPU unless it believes that they are on two machines.
  void share_device_if_needed() const {
    if (environment_.local_world <= cuda_device_count()) return;
    ::setenv("NCCL_HOSTID", fmt::format("moonshard-rank-{}", environment_.rank).c_str(), 0);
    if (environment_.one_machine) ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  }

  // Where the other machines reach this one, found and said once.
  const std::string& own_address() {
    if (own_address_.empty()) own_address_ = find_own_address();
    return own_address_;
  }
  std::string find_own_address() {
    if (environment_.one_machine) return "127.0.0.1";
    Route route;
    if (const char* asked = std::getenv("GLOO_SOCKET_IFNAME"); asked != nullptr && *asked != '\0') {
      route = route_by_interface(asked, "GLOO_SOCKET_IFNAME");
    } else {
      route = route_to(environment_.route_to);
      if (!is_loopback(route.other)) set_key(kReachedAt, route.other);
      if (is_loopback(route.own)) route = route_to(environment_.master_address);
      // The name of this very machine, which is a loopback address to itself: the others know more.
      if (is_loopback(route.own)) route = route_to(text_of_key(kReachedAt));
    }
    fmt::print(stderr, "moonshard: rank {} of {} on {}: address {}, rendezvous at {}:{}\n",
               environment_.rank, environment_.world, machine_name(), to_text(route),
               environment_.master_address, environment_.master_port);
    return route.own;
  }
  static constexpr const char* kReachedAt = "moonshard/first_machine";
  void set_key(const char* key, const std::string& text) {
    rendezvous_.store()->set(key, std::vector<uint8_t>(text.begin(), text.end()));
  }
  /// Waits for it.
  std::string text_of_key(const char* key) {
    const std::vector<uint8_t> bytes = rendezvous_.store()->get(key);
    return {bytes.begin(), bytes.end()};
  }

  RankEnvironment environment_;
  double timeout_s_;
  Rendezvous rendezvous_;
  Watchdog watchdog_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Communicator>> groups_;
  std::string own_address_;
};

// Held until leave_world; a process that ends without it lets the system close the connections:
// destructors at exit would wait for ranks that are gone.
std::mutex world_mutex;
std::shared_ptr<World>* joined = nullptr;

}  // namespace

bool is_rank() {
  static const bool answer = rank_environment().has_value();
  return answer;
}

void take_own_gpu() {
  try {
    if (is_rank()) set_default_gpu(rank_environment()->local_rank);
  } catch (const UsageError&) {  // reported when the world is asked for
  }
}

std::shared_ptr<World> this_world() {
  const std::lock_guard lock(world_mutex);
  if (joined == nullptr) {
    const auto environment = rank_environment();
    std::shared_ptr<World> world;
    if (environment && environment->world > 1) {
      world = std::make_shared<JobWorld>(*environment);
    } else {
      world = std::make_shared<SingleWorld>();
    }
    joined = new std::shared_ptr<World>(std::move(world));
  }
  return *joined;
}

std::shared_ptr<World> make_world(const std::string& name, const std::string& link) {
  if (name == "auto" || name.empty()) return this_world();
  const std::string prefix = "fake:";
  const std::string digits = name.starts_with(prefix) ? name.substr(prefix.size()) : "";
  const bool is_number = !digits.empty() && digits.size() <= 6 &&
                         digits.find_first_not_of("0123456789") == std::string::npos;
  MS_CHECK(is_number && std::stoi(digits) >= 1,
           "option 'world': expected auto or fake:N with N ranks, got '{}'", name);
  MS_CHECK(!is_rank() || this_world()->size() == 1,
           "option 'world': expected auto in a job of several ranks, got '{}'; run it without "
           "--nproc",
           name);
  return std::make_shared<FakeWorld>(std::stoi(digits), link);
}

int64_t job_seed() {
  static const int64_t seed = [] {
    auto* job = dynamic_cast<JobWorld*>(this_world().get());
    return job != nullptr ? job->agree_on_seed(drawn_seed()) : drawn_seed();
  }();
  return seed;
}

void leave_world(const std::string& error) {
  std::shared_ptr<World> world;
  {
    const std::lock_guard lock(world_mutex);
    if (joined == nullptr) return;
    world = *joined;
    if (error.empty()) {
      delete joined;
      joined = nullptr;
    }
  }
  if (auto* job = dynamic_cast<JobWorld*>(world.get())) job->say_goodbye(error);
}

}  // namespace moonshard::comm
