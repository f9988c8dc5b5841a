// Threads, and which limit keeps one from starting.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "core/base/parts.hpp"

namespace lockstep {

/// A thread that does `work`, which must not throw. If the system has none left, throws an Error that says what it was
/// for, and which limits of threads this process has:
///
///   no thread for the watchdog could be started: Resource temporarily unavailable; RLIMIT_NPROC is 100, pids.max of
///   /sys/fs/cgroup/job is 50
///
/// `purpose` is "for the watchdog" there.
LOCKSTEP_PARTS_API [[nodiscard]] std::thread start_thread(std::string_view purpose, std::function<void()> work);

/// The same for work that has a result, or throws: both come with `result`.
template <class Result>
struct StartedTask {
  std::thread thread;
  std::future<Result> result;
};
template <std::invocable Work>
[[nodiscard]] StartedTask<std::invoke_result_t<Work>> start_task(std::string_view purpose, Work work) {
  // A thread's work can be copied.
  const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Work>()>>(std::move(work));
  return {start_thread(purpose, [task] { (*task)(); }), task->get_future()};
}

/// The limits on the threads of this process: "RLIMIT_NPROC is 100, pids.max of /sys/fs/cgroup/job is 50". `root` is
/// where /proc and /sys are.
std::string limits_of_threads(const std::filesystem::path& root = "/");

}  // namespace lockstep
