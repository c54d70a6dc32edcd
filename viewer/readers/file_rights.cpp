#include "viewer/readers/file_rights.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#endif

namespace moonshard::viewer {

void give_up_privileges() {
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

#if __has_include(<linux/landlock.h>) && defined(SYS_landlock_create_ruleset)

void restrict_to_folders(const std::vector<std::string>& folders) {
  constexpr __u64 kReading = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
  // The thirteen rights of the first version, which every kernel with Landlock supports.
  landlock_ruleset_attr rules{};
  rules.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
  const int set = static_cast<int>(
      ::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules.handled_access_fs, 0));
  if (set < 0) return;
  for (const std::string& folder : folders) {
    const int fd = ::open(folder.c_str(), O_PATH | O_CLOEXEC);
    if (fd < 0) continue;  // the reader will say what is wrong with it
    landlock_path_beneath_attr rule{};
    rule.allowed_access = kReading;
    rule.parent_fd = fd;
    ::syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    ::close(fd);
  }
  ::syscall(SYS_landlock_restrict_self, set, 0);
  ::close(set);
}

#else

void restrict_to_folders(const std::vector<std::string>&) {}

#endif

}  // namespace moonshard::viewer
