--- A wire between two network namespaces that delays and loses packets, as `tc netem` would: not every kernel has netem.
-- luajit lossy_link.lua NAMESPACE ADDRESS NAMESPACE ADDRESS CONTROL
-- Each namespace gets an interface zz0 with its address. CONTROL is a file with a delay in ms and a share of packets to lose, one way,
-- read again all the time: "20 0.01"; a share of 1 is a cut wire. Ends when the file is gone.
local ffi = require "ffi"
ffi.cdef [[
int open(const char *path, int flags, ...);
int ioctl(int file, unsigned long request, ...);
int setns(int file, int kind);
struct pollfd { int file; short events, revents; };
int poll(struct pollfd *files, unsigned long count, int timeout);
long read(int file, void *bytes, size_t count);
long write(int file, const void *bytes, size_t count);
struct timespec { long s, ns; };
int clock_gettime(int which, struct timespec *time);
struct ifreq { char name[16]; short flags; char rest[22]; };
]]
local C = ffi.C
local O_RDWR, CLONE_NEWNET, TUNSETIFF, IFF_TUN_NO_PI, POLLIN = 2, 0x40000000, 0x400454ca, 0x1001, 1

local function plug(namespace, address)
  local space = C.open("/run/netns/" .. namespace, 0)
  assert(space >= 0 and C.setns(space, CLONE_NEWNET) == 0, "no namespace " .. namespace)
  local file = C.open("/dev/net/tun", O_RDWR)
  local request = ffi.new "struct ifreq"
  ffi.copy(request.name, "zz0")
  request.flags = IFF_TUN_NO_PI
  assert(file >= 0 and C.ioctl(file, TUNSETIFF, request) == 0, "no tun device")
  assert(os.execute(("ip addr add %s/24 dev zz0 && ip link set zz0 up"):format(address)) == 0)
  return file
end

local files = { plug(arg[1], arg[2]), plug(arg[3], arg[4]) }
local control = arg[5]

local time = ffi.new "struct timespec"
local function now()
  C.clock_gettime(1, time)
  return tonumber(time.s) * 1000 + tonumber(time.ns) / 1e6
end

local polled = ffi.new("struct pollfd[2]")
local bytes = ffi.new("char[65536]")
local queue, first = {}, 1
local delay, loss, looked = 0, 0, 0
math.randomseed(1)
while true do
  local at = now()
  if at - looked >= 5 then
    looked = at
    local file = io.open(control)
    if not file then break end
    local new_delay, new_loss = file:read("*n", "*n")
    file:close()
    if new_loss then delay, loss = new_delay, new_loss end
  end
  for i = 1, 2 do polled[i - 1].file, polled[i - 1].events, polled[i - 1].revents = files[i], POLLIN, 0 end
  C.poll(polled, 2, queue[first] and 1 or 5)
  at = now()
  for i = 1, 2 do
    if polled[i - 1].revents ~= 0 then
      local count = C.read(files[i], bytes, 65536)
      if count > 0 and math.random() >= loss then
        queue[#queue + 1] = { at + delay, files[3 - i], ffi.string(bytes, count) }
      end
    end
  end
  while queue[first] and queue[first][1] <= at do
    C.write(queue[first][2], queue[first][3], #queue[first][3])
    first = first + 1
  end
  if first > #queue and first > 1 then queue, first = {}, 1 end
end
