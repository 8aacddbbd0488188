#include "core/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

namespace ridgeline {
namespace {

constexpr int kNoQuota = 1 << 20;

int whole_cores(long quota, long period) {
  if (quota <= 0 || period <= 0) return kNoQuota;  // "max" (v2) and -1 (v1) are none
  return int(std::clamp<long>(quota / period, 1, kNoQuota));
}

// "max 100000" or "200000 100000".
int quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string word;
  long period = 0;
  if (!(file >> word >> period)) return kNoQuota;
  return whole_cores(std::strtol(word.c_str(), nullptr, 10), period);
}

int quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  long quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return kNoQuota;
  return whole_cores(quota, period);
}

// The group at `path` below `mount`, and each around it: any of them may hold a quota. Inside a container the path is
// often that of the host and not below the mount; the mount itself is the container's group then.
template <typename Quota>
int tightest(const std::string& mount, std::string path, Quota quota) {
  int least = quota(mount);
  while (path.size() > 1) {
    least = std::min(least, quota(mount + path));
    path.erase(path.rfind('/'));
  }
  return least;
}

}  // namespace

int quota_cores(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  // What a system without /proc/self/cgroup shows at the usual places.
  int least = std::min({quota_v2(mount), quota_v1(mount + "/cpu"), quota_v1(mount + "/cpu,cpuacct")});
  // "0::/user.slice/a.scope" (v2), "4:cpu,cpuacct:/docker/0123" (v1): cgroups(7).
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (path.empty() || path[0] != '/' || path.find("/..") != std::string::npos) continue;
    if (controllers.empty()) {
      least = std::min(least, tightest(mount, path, quota_v2));
      least = std::min(least, tightest(mount + "/unified", path, quota_v2));
      continue;
    }
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
      if (name != "cpu") continue;
      least = std::min(least, tightest(mount + "/cpu", path, quota_v1));
      least = std::min(least, tightest(mount + "/" + controllers, path, quota_v1));
    }
  }
  return least;
}

int available_cores() {
  // A machine with more than CPU_SETSIZE (1024) cores refuses the small set: ask with larger ones.
  int allowed = 1;
  for (int most = CPU_SETSIZE; most <= (1 << 16); most *= 2) {
    cpu_set_t* const set = CPU_ALLOC(size_t(most));
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(size_t(most));
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    if (known) allowed = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
    if (known) break;
  }
  return std::max(1, std::min(allowed, quota_cores()));
}

}  // namespace ridgeline
