// How many cores this process may use.
#pragma once

#include <string>

namespace ridgeline {

/// The affinity mask, cut by the container's CPU quota; at least 1. Asked anew at each call: an affinity may change.
int available_cores();

/// Whole cores that the quotas of this process's control groups leave, the tightest of its group and those around it
/// (cgroup v2's cpu.max, v1's cpu.cfs_quota_us); a large number if there is none. A quota of 1.5 cores gives 1: two
/// threads would stand still for a quarter of each period. `root`: before /proc and /sys, for tests.
int quota_cores(const std::string& root = "");

}  // namespace ridgeline
