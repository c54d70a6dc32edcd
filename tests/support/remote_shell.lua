--- A remote shell over the test's own wire, in the place of ssh: no keys, no secrets, the same behaviour of streams.
-- luajit remote_shell.lua serve ADDRESS PORT           runs commands for everybody
-- luajit remote_shell.lua connect ADDRESS PORT COMMAND  has one run there; input and output are the command's
local ffi = require "ffi"
ffi.cdef [[
int socket(int domain, int type, int protocol);
struct address { uint16_t family, port; uint32_t host; char rest[8]; };
int bind(int file, const struct address *address, unsigned size);
int connect(int file, const struct address *address, unsigned size);
int listen(int file, int backlog);
int accept(int file, void *address, void *size);
int setsockopt(int file, int level, int name, const int *value, unsigned size);
int shutdown(int file, int how);
int fork(void);
int dup2(int from, int to);
int close(int file);
void _exit(int code);
int execl(const char *path, const char *word, ...);
long read(int file, void *bytes, size_t count);
long write(int file, const void *bytes, size_t count);
struct pollfd { int file; short events, revents; };
int poll(struct pollfd *files, unsigned long count, int timeout);
typedef void (*handler)(int);
handler signal(int number, handler action);
]]
local C = ffi.C
local AF_INET, SOCK_STREAM, SIGCHLD, POLLIN = 2, 1, 17, 1
C.signal(SIGCHLD, ffi.cast("handler", 1))  -- ignored: nobody to wait for

local function address_of(host, port)
  local address, value = ffi.new "struct address", ffi.new "union { uint8_t bytes[4]; uint32_t whole; }"
  local a, b, c, d = host:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
  for i, part in ipairs { a, b, c, d } do value.bytes[i - 1] = tonumber(part) end
  address.family, address.host = AF_INET, value.whole
  address.port = bit.bor(bit.lshift(bit.band(port, 255), 8), bit.rshift(port, 8))
  return address
end

local mode, address = arg[1], address_of(arg[2], tonumber(arg[3]))
local file = C.socket(AF_INET, SOCK_STREAM, 0)
local piece = ffi.new "char[65536]"

local function write_all(to, bytes, count)
  local done = 0
  while done < count do
    local written = tonumber(C.write(to, bytes + done, count - done))
    if written <= 0 then C._exit(1) end
    done = done + written
  end
end

if mode == "serve" then
  C.setsockopt(file, 1, 2, ffi.new("int[1]", 1), 4)
  assert(C.bind(file, address, 16) == 0 and C.listen(file, 16) == 0, "cannot listen")
  while true do
    local client = C.accept(file, nil, nil)
    if client >= 0 and C.fork() == 0 then
      C.close(file)
      local line = {}
      while tonumber(C.read(client, piece, 1)) == 1 and piece[0] ~= 10 do line[#line + 1] = ffi.string(piece, 1) end
      C.dup2(client, 0)
      C.dup2(client, 1)
      C.close(client)
      C.signal(SIGCHLD, nil)
      C.execl("/bin/sh", "sh", "-c", table.concat(line), ffi.cast("const char *", nil))
      C._exit(127)
    end
    C.close(client)
  end
end

if C.connect(file, address, 16) ~= 0 then
  io.stderr:write("cannot reach ", arg[2], "\n")
  C._exit(255)
end
local command = arg[4] .. "\n"
write_all(file, ffi.cast("const char *", command), #command)
local polled = ffi.new "struct pollfd[2]"
polled[0].file, polled[1].file = 0, file
while true do
  polled[0].events, polled[1].events = POLLIN, POLLIN
  C.poll(polled, 2, 1000)
  if polled[0].revents ~= 0 then
    local got = tonumber(C.read(0, piece, 65536))
    if got > 0 then write_all(file, piece, got) else
      C.shutdown(file, 1)
      polled[0].file = -1
    end
  end
  if polled[1].revents ~= 0 then
    local got = tonumber(C.read(file, piece, 65536))
    if got <= 0 then C._exit(0) end
    write_all(1, piece, got)
  end
end
