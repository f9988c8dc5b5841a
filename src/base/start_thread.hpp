// Threads, and which limit keeps one from starting.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace lockstep {

/// A thread that does `work`, which must not throw. If the system has none left, throws an Error that says what it was
/// for, and which limits of threads this process has:
///
///   no thread for the watchdog could be started: Resource temporarily unavailable; RLIMIT_NPROC is 100, pids.max of
///   /sys/fs/cgroup/job is 50
///
/// `purpose` is "for the watchdog" there.
[[nodiscard]] std::thread start_thread(std::string_view purpose, std::function<void()> work);

/// The limits on the threads of this process: "RLIMIT_NPROC is 100, pids.max of /sys/fs/cgroup/job is 50". `root` is
/// where /proc and /sys are.
std::string limits_of_threads(const std::filesystem::path& root = "/");

}  // namespace lockstep
