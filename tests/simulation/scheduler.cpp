#include "tests/simulation/scheduler.h"

#include <cxxabi.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace moonshard::simulation {

// ---- numbers ----------------------------------------------------------------------------------

uint64_t Random::next() {
  uint64_t value = (state_ += 0x9e3779b97f4a7c15ull);
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

int64_t Random::below(int64_t count) {
  return static_cast<int64_t>(next() % static_cast<uint64_t>(count));
}

double Random::between(double low, double high) {
  return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
}

bool Random::chance(double probability) {
  return between(0, 1) < probability;
}

// ---- fibers -----------------------------------------------------------------------------------

namespace {

// The address sanitizer must hear of other stacks, and needs larger ones.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = 2 << 20;
void leave_stack(void** frames, const void* next, size_t bytes) {
  __sanitizer_start_switch_fiber(frames, next, bytes);
}
void arrive_on_stack(void* frames, const void** before, size_t* bytes) {
  __sanitizer_finish_switch_fiber(frames, before, bytes);
}
void forget_frames(void* stack) {
  __asan_unpoison_memory_region(stack, kStackBytes);
}
#else
constexpr size_t kStackBytes = 256 << 10;
void leave_stack(void**, const void*, size_t) {}
void arrive_on_stack(void*, const void**, size_t*) {}
void forget_frames(void*) {}
#endif

// Stacks are used again by the next process and the next seed.
std::vector<void*>& free_stacks() {
  static std::vector<void*> stacks;
  return stacks;
}

void* take_stack() {
  if (!free_stacks().empty()) {
    void* stack = free_stacks().back();
    free_stacks().pop_back();
    forget_frames(stack);  // of a process that was killed
    return stack;
  }
  void* stack =
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) std::abort();
  return stack;
}

}  // namespace

// What a thread remembers of exceptions on their way: each fiber has its own.
struct ExceptionState {
  void* caught = nullptr;
  unsigned int uncaught = 0;
};

static ExceptionState exchange_exceptions(const ExceptionState& other) {
  void* place = abi::__cxa_get_globals();
  ExceptionState before;
  std::memcpy(&before.caught, place, sizeof before.caught);
  std::memcpy(&before.uncaught, static_cast<char*>(place) + sizeof(void*), sizeof before.uncaught);
  std::memcpy(place, &other.caught, sizeof other.caught);
  std::memcpy(static_cast<char*>(place) + sizeof(void*), &other.uncaught, sizeof other.uncaught);
  return before;
}

class Fiber {
 public:
  explicit Fiber(Process& process) : process_(process), stack_(take_stack()) {
    ::getcontext(&own_);
    own_.uc_stack.ss_sp = stack_;
    own_.uc_stack.ss_size = kStackBytes;
    own_.uc_link = nullptr;
    const auto address = reinterpret_cast<uintptr_t>(this);
    ::makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                  static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  }
  ~Fiber() { free_stacks().push_back(stack_); }

  void go_on() {
    const ExceptionState ours = exchange_exceptions(exceptions_);
    void* frames = nullptr;
    leave_stack(&frames, stack_, kStackBytes);
    ::swapcontext(&caller_, &own_);
    arrive_on_stack(frames, nullptr, nullptr);
    exceptions_ = exchange_exceptions(ours);
  }
  void pause() {
    void* frames = nullptr;
    leave_stack(process_.has_ended ? nullptr : &frames, caller_stack_, caller_bytes_);
    ::swapcontext(&own_, &caller_);
    arrive_on_stack(frames, &caller_stack_, &caller_bytes_);
  }

 private:
  static void enter(unsigned high, unsigned low) {
    auto* fiber = reinterpret_cast<Fiber*>((static_cast<uintptr_t>(high) << 32) | low);
    arrive_on_stack(nullptr, &fiber->caller_stack_, &fiber->caller_bytes_);
    try {
      fiber->process_.exit_code = fiber->process_.body();
    } catch (const Killed&) {
      fiber->process_.exit_code = 137;
    }
    fiber->process_.has_ended = true;
    fiber->pause();
  }

  Process& process_;
  void* stack_;
  const void* caller_stack_ = nullptr;
  size_t caller_bytes_ = 0;
  ucontext_t own_{}, caller_{};
  ExceptionState exceptions_;
};

// ---- the scheduler ----------------------------------------------------------------------------

Scheduler::Scheduler(uint64_t seed, bool keeps_log) : random(seed), keeps_log_(keeps_log) {}

Scheduler::~Scheduler() {
  end_all();
}

void Scheduler::end_all() {
  // Those that still wait unwind: what they hold is freed.
  for (const auto& process : processes_) process->is_dead = true;
  for (size_t i = 0; i < processes_.size(); ++i) {
    while (!processes_[i]->has_ended) resume(*processes_[i]);
  }
  processes_.clear();
}

std::shared_ptr<Process> Scheduler::start(const std::string& name, std::function<int()> body,
                                          int64_t group) {
  auto process = std::make_shared<Process>();
  process->id = next_id_++;
  process->group = group != 0 ? group : process->id;
  process->name = name;
  process->wakes_at = now_;
  process->body = std::move(body);
  process->fiber = std::make_unique<Fiber>(*process);
  processes_.push_back(process);
  return process;
}

void Scheduler::kill(int64_t group) {
  for (const auto& process : processes_)
    if (process->group == group) process->is_dead = true;
}

bool Scheduler::is_alive(int64_t group) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& process) {
    return process->group == group && !process->is_dead && !process->has_ended;
  });
}

// Whoever is ready, at random; else time passes until somebody is.
Process* Scheduler::choose() {
  int64_t ready = 0;
  Process* chosen = nullptr;
  Process* next = nullptr;
  for (const auto& process : processes_) {
    if (process->has_ended) continue;
    if (process->is_dead) return process.get();
    if (is_frozen_ && !process->cannot_freeze) continue;
    if (process->wakes_at <= now_) {
      ++ready;
      if (ready == 1 || random.below(ready) == 0) chosen = process.get();
    } else if (next == nullptr || process->wakes_at < next->wakes_at) {
      next = process.get();
    }
  }
  if (chosen != nullptr || next == nullptr) return chosen;
  now_ = next->wakes_at;
  return next;
}

void Scheduler::resume(Process& process) {
  current_ = &process;
  process.fiber->go_on();
  current_ = nullptr;
}

void Scheduler::bury() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (!processes_[i]->has_ended) continue;
    const std::shared_ptr<Process> gone = processes_[i];
    processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(i--));
    // A process ends with its first thread.
    if (gone->id == gone->group) kill(gone->group);
    if (on_end && !is_alive(gone->group)) on_end(gone->group);
  }
}

std::string Scheduler::run(int64_t most_turns) {
  std::string problem = run_turns(most_turns);
  end_all();
  return problem;
}

std::string Scheduler::run_turns(int64_t most_turns) {
  while (true) {
    if (++turns_ > most_turns) return fmt::format("it has not ended after {} turns", most_turns);
    Process* process = choose();
    if (process == nullptr) break;
    resume(*process);
    if (process->has_ended) bury();
    if (after_turn) {
      if (std::string problem = after_turn(); !problem.empty()) return problem;
    }
  }
  return processes_.empty() ? "" : "all that are left are stopped for ever";
}

void Scheduler::leave() {
  current_->fiber->pause();
}

void Scheduler::pass() {
  // Alone, or chosen again: no need to leave.
  if (processes_.size() == 1 && !after_turn) return;
  if (random.chance(0.5)) return;
  leave();
}

void Scheduler::sleep(double seconds) {
  if (current_->is_dead) throw Killed();
  current_->wakes_at = now_ + seconds;
  leave();
  if (current_->is_dead) throw Killed();
}

bool Scheduler::wait_for(const std::function<bool()>& holds, double most_seconds) {
  const double deadline = now_ + most_seconds;
  while (!holds()) {
    if (now_ >= deadline) return false;
    sleep(std::min(random.between(0.001, 0.2), deadline - now_ + 1e-9));
  }
  return true;
}

void Scheduler::log(const std::string& text) {
  if (!keeps_log_) return;
  lines_.push_back(
      fmt::format("{:10.4f} {:<12} {}", now_, current_ != nullptr ? current_->name : "-", text));
}

}  // namespace moonshard::simulation
