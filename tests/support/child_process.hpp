// Real processes for tests of what one process sees of another.
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::test {

/// True as soon as `condition` is; false if it is not within a time that only a failure takes.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::steady_clock::duration patience = std::chrono::seconds{60}) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

/// A fork of this process. It ends with the test, or before. Start it while this process has one thread.
class ChildProcess {
 public:
  /// The child's status is `body`'s result; 99 if it threw.
  explicit ChildProcess(const std::function<int()>& body) : parent_{::getpid()}, id_{::fork()} {
    if (id_ < 0) throw std::runtime_error{"fork failed"};
    if (id_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The test framework's handlers came along, and would report in the child's name.
    for (const int number : {SIGTERM, SIGINT, SIGABRT, SIGSEGV, SIGFPE, SIGILL}) ::signal(number, SIG_DFL);
    int status = 99;
    try {
      if (::getppid() == parent_) status = body();
    } catch (...) {
    }
    ::_exit(status);  // the test program's own destructors and reports are its parent's business
  }
  ChildProcess(const ChildProcess&) = delete;
  ~ChildProcess() {
    if (reaped_) return;
    ::kill(id_, SIGKILL);
    (void)wait();
  }

  pid_t id() const { return id_; }
  void signal(int number) const { ::kill(id_, number); }

  /// Stops it, and waits until that has happened: a signal may take effect later.
  void stop() const {
    signal(SIGSTOP);
    siginfo_t info;
    while (::waitid(P_PID, static_cast<id_t>(id_), &info, WSTOPPED | WNOWAIT) < 0 && errno == EINTR) {
    }
  }

  /// Waits for its end. Its exit status, or minus the number of the signal that ended it.
  int wait() {
    int status = 0;
    while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    reaped_ = true;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

  /// Waits until it has ended, and leaves it to be waited for.
  void wait_for_end() const {
    siginfo_t info;
    while (::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
  }

 private:
  pid_t parent_;
  pid_t id_;
  bool reaped_ = false;
};

/// Collects what this process writes to stderr while it lives. For less than a pipe holds (64 KiB).
class CapturedStderr {
 public:
  CapturedStderr() : original_{::dup(STDERR_FILENO)} {
    if (::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error{"pipe failed"};
    ::dup2(pipe_[1], STDERR_FILENO);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  ~CapturedStderr() {
    ::dup2(original_, STDERR_FILENO);
    for (const int descriptor : {original_, pipe_[0], pipe_[1]}) ::close(descriptor);
  }

  /// Everything so far.
  const std::string& text() {
    char bytes[4096];
    for (ssize_t count; (count = ::read(pipe_[0], bytes, sizeof bytes)) > 0;)
      text_.append(bytes, static_cast<std::size_t>(count));
    return text_;
  }

 private:
  int original_;
  int pipe_[2] = {-1, -1};
  std::string text_;
};

}  // namespace lockstep::test
