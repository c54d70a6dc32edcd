// Virtual time and processes that take turns: every process is a fiber of one thread, and a seed
// decides who goes on at each call of the system's. The same seed gives the same history.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace moonshard::simulation {

/// A sequence of numbers by seed (SplitMix64); the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 0x1234567ull) {}
  uint64_t next();
  /// 0 … count - 1
  int64_t below(int64_t count);
  bool chance(double probability);
  double between(double low, double high);

 private:
  uint64_t state_;
};

/// Thrown out of waits of a process that was killed. Not an std::exception: nothing handles it.
struct Killed {};

class Fiber;

struct Process {
  int64_t id = 0;
  std::string name;
  int64_t group = 0;  ///< threads of one process have one
  bool is_dead = false, has_ended = false;
  int exit_code = 0;    ///< of the body
  double wakes_at = 0;  ///< it waits until then
  bool cannot_freeze = false;
  std::function<int()> body;
  std::unique_ptr<Fiber> fiber;
};

class Scheduler {
 public:
  Scheduler(uint64_t seed, bool keeps_log);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;

  Random random;
  /// Of a clock that does not jump.
  double now() const { return now_; }

  /// The body's value is the exit code. With a group, a thread of that process.
  std::shared_ptr<Process> start(const std::string& name, std::function<int()> body,
                                 int64_t group = 0);
  /// All threads of the process; each ends at its next wait.
  void kill(int64_t group);
  bool is_alive(int64_t group) const;
  /// All but those that cannot be stopped: nobody goes on while time does.
  void freeze(bool stops) { is_frozen_ = stops; }
  /// Called after each turn, with nobody running; a text ends the simulation as a failure.
  std::function<std::string()> after_turn;
  /// Called for processes that have died or ended, once per group.
  std::function<void(int64_t group)> on_end;

  /// Until all have ended. Returns "", or why it did not come to that; nobody runs afterwards.
  std::string run(int64_t most_turns);

  // For the running process.
  Process& current() { return *current_; }
  bool is_running() const { return current_ != nullptr; }
  /// Others may go on. Does not throw: for calls out of destructors.
  void pass();
  /// Throws Killed.
  void sleep(double seconds);
  /// Until it holds or the time is over; returns whether it holds. Throws Killed.
  bool wait_for(const std::function<bool()>& holds, double most_seconds);

  void log(const std::string& text);
  const std::vector<std::string>& lines() const { return lines_; }
  bool keeps_log() const { return keeps_log_; }
  /// Of all that was logged or could have been: equal for equal histories.
  uint64_t fingerprint() const { return fingerprint_; }
  void note(uint64_t value) { fingerprint_ = (fingerprint_ ^ value) * 1099511628211ull; }

 private:
  Process* choose();
  void resume(Process& process);
  void leave();
  void bury();
  std::string run_turns(int64_t most_turns);
  void end_all();

  double now_ = 0;
  int64_t next_id_ = 1;
  std::vector<std::shared_ptr<Process>> processes_;
  Process* current_ = nullptr;
  bool keeps_log_, is_frozen_ = false;
  std::vector<std::string> lines_;
  uint64_t fingerprint_ = 1469598103934665603ull;
  int64_t turns_ = 0;
};

}  // namespace moonshard::simulation
