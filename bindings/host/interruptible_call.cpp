// See interruptible_call.h. The handler does only what is safe in one: lock-free atomics, write(2),
// _exit(2), and lua_sethook, which LuaJIT's own program calls from its handler in the same way.
#include "bindings/host/interruptible_call.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "runtime/base/interrupt.h"

namespace moonshard::host {

namespace {

constexpr int64_t kRepeatWindowMs = 2000;
constexpr int kExitCodeAfterCtrlC = 130;
constexpr char kHint[] = "\npress Ctrl-C once more to end the program\n";

std::atomic<lua_State*> g_running{nullptr};
std::atomic<int> g_presses{0};
std::atomic<int64_t> g_last_press_ms{0};
pthread_t g_lua_thread;
bool g_interrupted = false;

static_assert(std::atomic<lua_State*>::is_always_lock_free, "a signal handler reads this");
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler writes this");

int64_t now_ms() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

// Stays armed until the call is over: a loop around pcall swallows one error, not one per
// instruction.
void raise_interrupted(lua_State* L, lua_Debug*) {
  luaL_error(L, "interrupted");
}

extern "C" void on_sigint(int signal) {
  // Worker threads do not block the signal, but only the Lua thread may touch the Lua state.
  if (!pthread_equal(pthread_self(), g_lua_thread)) {
    pthread_kill(g_lua_thread, signal);
    return;
  }
  const int saved_errno = errno;
  lua_State* L = g_running.load();
  if (L) {
    const int64_t now = now_ms();
    const int earlier = g_presses.load();
    // A late second press counts as a first one; after the hint the next press is final.
    const bool repeated = earlier == 1 && now - g_last_press_ms.load() <= kRepeatWindowMs;
    if (earlier >= 2) _exit(kExitCodeAfterCtrlC);
    if (repeated) {
      const ssize_t ignored = ::write(STDERR_FILENO, kHint, sizeof kHint - 1);
      (void)ignored;
    }
    g_presses.store(repeated ? 2 : 1);
    g_last_press_ms.store(now);
    request_interrupt();
    lua_sethook(L, raise_interrupted, LUA_MASKCALL | LUA_MASKCOUNT, 1);
  }
  errno = saved_errno;
}

// Plain data: a Lua error may not skip a destructor.
struct Watch {
  struct sigaction previous;
  lua_State* outer;
};

void start_watch(Watch* watch, lua_State* L) {
  clear_interrupt();
  g_lua_thread = pthread_self();
  g_presses.store(0);
  watch->outer = g_running.exchange(L);
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = on_sigint;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // system calls of the user's code need not handle EINTR
  sigaction(SIGINT, &action, &watch->previous);
}

bool stop_watch(const Watch* watch, lua_State* L) {
  g_running.store(watch->outer);  // first, so that a late press arms nothing
  lua_sethook(L, nullptr, 0, 0);
  sigaction(SIGINT, &watch->previous, nullptr);
  clear_interrupt();
  return g_presses.load() > 0;
}

// Upvalues: info function, call function. The error propagates to the outermost call, and nothing
// else can catch it: from here on the hook would only break the report.
int on_error(lua_State* L) {
  lua_sethook(L, nullptr, 0, 0);
  lua_settop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_call(L, 2, 1);
  return 1;
}

// Upvalues: info function, this function itself.
int interruptible_call(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  const int num_args = lua_gettop(L) - 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_pushcclosure(L, on_error, 2);
  lua_insert(L, 1);
  Watch watch;
  start_watch(&watch, L);
  const int status = lua_pcall(L, num_args, LUA_MULTRET, 1);
  g_interrupted = stop_watch(&watch, L);
  lua_pushboolean(L, status == 0);
  lua_replace(L, 1);
  if (status == 0) return lua_gettop(L);
  lua_pushboolean(L, g_interrupted);
  return 3;
}

}  // namespace

void push_interruptible_call(lua_State* L) {
  lua_pushnil(L);
  lua_pushcclosure(L, interruptible_call, 2);
  lua_pushvalue(L, -1);
  lua_setupvalue(L, -2, 2);
}

bool last_call_was_interrupted() noexcept {
  return g_interrupted;
}

}  // namespace moonshard::host
