// Which of this machine's addresses the other machines of a job reach it at. A machine has several
// interfaces, and its own name may mean the loopback one: the routes decide. Needs no LibTorch.
#pragma once

#include <string>

namespace moonshard::comm {

struct Route {
  std::string own;        ///< the address that packets leave from
  std::string interface;  ///< its interface, empty when it has none
  std::string other;      ///< the host's address, as this machine resolves its name
};

/// The route to a host; its own address on both ends when it is this machine. Throws IoError when
/// the name is unknown or no route leads there.
Route route_to(const std::string& host);

/// The address of an interface. Throws UsageError when it has none; `variable` asked for it.
Route route_by_interface(const std::string& name, const char* variable);

/// True when the host is this machine: localhost, its name, or one of its addresses.
bool is_this_machine(const std::string& host);

/// "10.0.0.3 (eth1)"
std::string to_text(const Route& route);

/// This machine's name for reports.
std::string machine_name();

}  // namespace moonshard::comm
