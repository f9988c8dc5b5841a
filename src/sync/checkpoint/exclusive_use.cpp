#include "sync/checkpoint/exclusive_use.hpp"

#include <cerrno>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/awake_clock.hpp"
#include "core/base/file_io.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/file_system.hpp"
#include "sync/checkpoint/shared_files.hpp"

namespace lockstep {
namespace {

using Clock = AwakeClock;
using namespace std::chrono_literals;

}  // namespace

ExclusiveUse::ExclusiveUse(Options options) : options_{std::move(options)} {
  const auto deadline = Clock::now() + options_.patience;
  bool told = false;
  for (Lease::Attempt made; (made = attempt()) != Lease::Attempt::taken;) {
    const bool is_held = made == Lease::Attempt::held;
    if (is_held && Clock::now() >= deadline) refuse();
    if (!std::exchange(told, true)) log::info(fmt::format("{}: waits for {}", options_.name, describe(holder())));
    std::this_thread::sleep_for(lease_ ? lease_->pace() : 50ms);
  }
}

void ExclusiveUse::require() {
  if (!is_guarded_) return;
  require_not_lost();
  if (lease_ && !lease_->renew()) require_not_lost();
  const auto holds = [&](const Descriptor& file) { return is_open_on(file.get(), options_.file.c_str()); };
  if (lease_ || holds(file_) || holds(successor_)) return;
  std::error_code told_by_open;
  std::filesystem::create_directories(options_.file.parent_path(), told_by_open);
  const FileLocking locking = lock();
  if (locking == FileLocking::held) refuse();
  if (locking != FileLocking::locked)
    fail_checkpoint(options_.file.string(), "cannot be locked any more: the file system refuses locks");
}

void ExclusiveUse::require_not_lost() const {
  if (lease_ && lease_->is_lost())
    throw ConfigError{fmt::format("{}: this process did not renew {} for {} s, and {} took it; this one writes no more",
                                  options_.name, options_.lease.string(), options_.lease_times.lost_after / 1s,
                                  describe(lease_->holder()))};
}

void ExclusiveUse::extend_to(int descriptor) {
  if (lease_ || !is_guarded_) return;
  (void)lock_file(descriptor, LockedByte::use);  // nobody else knows of it
  successor_ = Descriptor{::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)};
}

Lease::Attempt ExclusiveUse::attempt() {
  if (!lease_) {
    switch (lock()) {
      case FileLocking::locked: return Lease::Attempt::taken;
      case FileLocking::held: return Lease::Attempt::held;
      case FileLocking::unsupported: break;
    }
    lease_ = std::make_unique<Lease>(options_.lease, options_.lease_times);
  }
  try {
    return lease_->attempt();
  } catch (const UnsupportedError& error) {
    warn_of_lack(options_.file.parent_path(), "has neither locks nor what a lease needs", error.code(),
                 fmt::format("another training could use {} at the same time", options_.name));
    lease_.reset();
    is_guarded_ = false;
    return Lease::Attempt::taken;
  }
}

FileLocking ExclusiveUse::lock() {
  constexpr mode_t as_the_user_allows = 0666;
  while (true) {
    // One in which this writes who holds it is shared.
    Descriptor file =
        options_.content == Content::holder ? open_shared(options_.file, O_RDWR) : Descriptor{uninterrupted([&] {
          return ::open(options_.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, as_the_user_allows);
        })};
    if (file.get() < 0) throw FileError{one_line("checkpoint " + options_.file.string()), "locked", errno};
    const FileLocking result = options_.file_system == Options::FileSystem::without_locks
                                   ? FileLocking::unsupported
                                   : lock_file(file.get(), LockedByte::use);
    if (result != FileLocking::locked) return result;
    // The file may have been replaced since it was opened.
    if (!is_open_on(file.get(), options_.file.c_str())) continue;
    file_ = std::move(file);
    if (options_.content == Content::holder) say_who_holds_it();
    return result;
  }
}

/// Nothing happens if the disk is full: it is locked all the same.
void ExclusiveUse::say_who_holds_it() const {
  const std::string line = line_about(LockHolder::self());
  if (::ftruncate(file_.get(), 0) == 0 && ::pwrite(file_.get(), line.data(), line.size(), 0) == std::ssize(line) &&
      ::fsync(file_.get()) == 0)
    (void)lock_file(file_.get(), LockedByte::holder);
}

std::optional<LockHolder> ExclusiveUse::holder() const {
  if (lease_) return lease_->holder();
  if (options_.content != Content::holder) return std::nullopt;
  // One who has just locked the file takes a moment to say so, and until then it names the one before.
  for (int looks = 0; looks < 100; ++looks) {
    const Descriptor file{::open(options_.file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    std::string text(4096, '\0');
    if (is_locked(file.get(), LockedByte::holder)) {
      const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
      text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
      return parse_holder(text);
    }
    std::this_thread::sleep_for(5ms);
  }
  return std::nullopt;
}

void ExclusiveUse::refuse() const {
  throw ConfigError{
      fmt::format("{} is in use by {}; expected {}", options_.name, describe(holder()), options_.expected)};
}

}  // namespace lockstep
