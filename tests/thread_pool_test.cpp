// The pool: cuts that depend on nothing but the number asked for, sessions that do not fight, helpers that sleep,
// forks.
#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

using Part = std::tuple<int, int64_t, int64_t>;  // thread, begin, end

std::set<Part> parts_of(const ThreadPool& pool, int64_t count, int64_t grain) {
  std::set<Part> parts;
  std::mutex mutex;
  pool.run(count, grain, [&](int64_t begin, int64_t end, int thread) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(parts.emplace(thread, begin, end).second);
  });
  return parts;
}

int64_t cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

void sum_in_parts(const ThreadPool& pool) {
  std::vector<int64_t> sums(size_t(pool.threads()) * 16);
  pool.run(1000, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) sums[size_t(thread) * 16] += i;
  });
  ASSERT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t(0)), 499500);
}

// Threads that all go through the body together; false if they do not within two seconds.
bool meets(const ThreadPool& pool, int together) {
  std::atomic<int> there{0};
  pool.run(together, 1, [&](int64_t, int64_t, int) {
    ++there;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (there < together && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  return there == together;
}

TEST(ThreadPool, CutsByLanesWhateverTheThreads) {
  const std::set<Part> right = {{0, 0, 15},  {1, 15, 30}, {2, 30, 45}, {3, 45, 60},
                                {4, 60, 75}, {5, 75, 90}, {6, 90, 100}};
  for (int threads : {1, 2, 3, 8}) EXPECT_EQ(parts_of(ThreadPool(threads, 8), 100, 5), right) << threads;
  EXPECT_EQ(parts_of(ThreadPool(2).at_most(1), 100, 5), (std::set<Part>{{0, 0, 100}}));
  EXPECT_EQ(ThreadPool(2, 8).at_most(3).threads(), 3);
  EXPECT_EQ(parts_of(ThreadPool(300), 1000, 1).size(), 250u);  // no more than 256 parts, of 4 each
}

TEST(ThreadPool, HelpersWorkBesideTheCaller) {
  ASSERT_TRUE(meets(ThreadPool(4), 4));  // more than the cores here: somebody insisted
  for (int i = 0; i < 2000; ++i) sum_in_parts(ThreadPool(2 + i % 5));
}

TEST(ThreadPool, ThrowsWhatAPartThrows) {
  const ThreadPool pool(3);
  for (int who = 0; who < 3; ++who) {
    const auto body = [&](int64_t begin, int64_t, int) {
      if (begin == who) throw std::out_of_range("part " + std::to_string(who));
    };
    try {
      pool.run(3, 1, body);
      FAIL() << who;
    } catch (const std::out_of_range& error) {
      EXPECT_EQ(error.what(), "part " + std::to_string(who));
    }
  }
  sum_in_parts(pool);
}

TEST(ThreadPool, RegionsOfManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 300; ++i) {
        sum_in_parts(ThreadPool(2 + (t + i) % 4));
        if (i % 50 == 49) std::this_thread::sleep_for(std::chrono::microseconds(300));  // past the spinning
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadPool, RegionsWithinRegions) {
  std::atomic<int> calls{0};
  ThreadPool(3).run(3, 1,
                    [&](int64_t, int64_t, int) { ThreadPool(2).run(2, 1, [&](int64_t, int64_t, int) { ++calls; }); });
  EXPECT_EQ(calls, 6);
}

// As many sessions as cores: each has a core to itself, and none takes another's as a helper.
TEST(ThreadPool, SessionsLeaveEachOtherTheirCores) {
  const int cores = available_cores();
  const auto helped = [&] {
    std::set<std::thread::id> who;
    std::mutex mutex;
    ThreadPool(cores).run(cores, 1, [&](int64_t, int64_t, int) {
      {
        const std::lock_guard lock(mutex);
        who.insert(std::this_thread::get_id());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
    return who.size() > 1;
  };
  if (cores > 1) {
    EXPECT_TRUE(helped());
  }
  std::atomic<int> held{0};
  std::atomic<bool> end{false};
  std::vector<std::thread> sessions;
  for (int s = 0; s < cores - 1; ++s) {
    sessions.emplace_back([&] {
      const PoolSession session, within;  // counts once
      ++held;
      end.wait(false);
    });
  }
  while (held < cores - 1) std::this_thread::yield();
  EXPECT_FALSE(helped());
  end = true;
  end.notify_all();
  for (std::thread& session : sessions) session.join();
  if (cores > 1) {
    EXPECT_TRUE(helped());
  }
}

// A pool that spun until the next region would burn 300 ms a helper here.
TEST(ThreadPool, AnIdleProcessBurnsNothing) {
  for (int i = 0; i < 100; ++i) sum_in_parts(ThreadPool(3));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t before = cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(double(cpu_ns() - before) / 1e6, 5.0);
}

// The child has none of the parent's helpers, though the parent's pool said so when it was copied.
void computes_in_child() {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    bool right = meets(ThreadPool(3), 3);
    for (int i = 0; i < 100; ++i) {
      std::atomic<int64_t> sum{0};
      ThreadPool(3).run(100, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
      right = right && sum == 100;
    }
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << (WIFSIGNALED(status) ? "it hung" : "it was wrong");
}

TEST(Fork, TheChildComputes) {
  ASSERT_TRUE(meets(ThreadPool(3), 3));
  computes_in_child();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the helpers sleep
  computes_in_child();
  const PoolSession session;
  computes_in_child();
  ASSERT_TRUE(meets(ThreadPool(3), 3));
}

TEST(Fork, WhileOthersCompute) {
  std::atomic<bool> end{false};
  std::thread other([&] {
    while (!end) sum_in_parts(ThreadPool(3));
  });
  for (int i = 0; i < 10; ++i) computes_in_child();
  end = true;
  other.join();
}

// Files as the kernel shows them: cgroups(7), and Documentation/admin-guide/cgroup-v2.rst.
class Quota : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("ridgeline-quota-" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int cores() const { return quota_cores(root_.string()); }
  fs::path root_;
};

TEST_F(Quota, NoneIsALargeNumber) {
  EXPECT_GT(cores(), 100000);
  file("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_GT(cores(), 100000);
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_GT(cores(), 100000);
}

TEST_F(Quota, Version2InsideAContainer) {
  file("sys/fs/cgroup/cpu.max", "350000 100000\n");
  EXPECT_EQ(cores(), 3);
  file("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cores(), 1);
}

TEST_F(Quota, Version2TheTightestAround) {
  file("proc/self/cgroup", "0::/user.slice/job.scope/inner\n");
  file("sys/fs/cgroup/user.slice/cpu.max", "800000 100000\n");
  file("sys/fs/cgroup/user.slice/job.scope/cpu.max", "100000 50000\n");
  file("sys/fs/cgroup/user.slice/job.scope/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(cores(), 2);
}

TEST_F(Quota, Version1) {
  file("proc/self/cgroup", "12:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n0::/init.scope\n");
  file("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "400000\n");
  file("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 4);
  file("sys/fs/cgroup/memory/docker/ab/cpu.cfs_quota_us", "100000\n");  // another controller's
  EXPECT_EQ(cores(), 4);
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 2);
}

TEST(Fork, AffinityIsRespected) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++c)
      if (CPU_ISSET(c, &allowed)) CPU_SET(c, &one);
    sched_setaffinity(0, sizeof one, &one);
    _exit(available_cores() == 1 && ThreadPool(0).threads() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ridgeline
