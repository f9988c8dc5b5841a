#include "sync/checkpoint/lease.hpp"

#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/descriptor.hpp"
#include "core/base/file_io.hpp"
#include "core/base/start_thread.hpp"
#include "core/base/system_error.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/file_system.hpp"
#include "sync/checkpoint/shared_files.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::chrono::nanoseconds between(const timespec& earlier, const timespec& later) {
  return std::chrono::seconds{later.tv_sec - earlier.tv_sec} +
         std::chrono::nanoseconds{later.tv_nsec - earlier.tv_nsec};
}

/// UnsupportedError where no process could do it. Permissions are not among that: another one's may be in the way.
[[noreturn]] void fail(const fs::path& path, std::string_view doing) {
  const int error = errno;
  try {
    fail_checkpoint(path.string(), fmt::format("cannot be {}: {}", doing, error_text(error)));
  } catch (const CheckpointError& failure) {
    if (is_unsupported(error) && error != EPERM && error != EACCES) throw UnsupportedError{failure.what(), error};
    throw;
  }
}

CountedTime::Seconds steady_now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

Descriptor open_to_read(const fs::path& path) {
  return Descriptor{
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); })};
}

/// When the file at `path` was last touched, by its server's clock: opening it refreshes the attributes. Nothing, and
/// errno says why, if that cannot be seen.
std::optional<timespec> touched(const fs::path& path) {
  const Descriptor file = open_to_read(path);
  struct stat status = {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) return std::nullopt;
  return status.st_mtim;
}

std::string text_of(const fs::path& path) {
  std::string text(4096, '\0');
  const Descriptor file = open_to_read(path);
  const ssize_t count = uninterrupted([&] { return ::read(file.get(), text.data(), text.size()); });
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return text;
}

/// A folder beside the lease with the file of one holder in it, to be moved there as a whole.
class Draft {
 public:
  Draft(const fs::path& lease, const LockHolder& holder)
      : folder_{fmt::format("{}-{}", lease.string(), holder.key)}, file_{folder_ / holder.key} {
    constexpr mode_t as_the_user_allows = 0777;
    if (::mkdir(folder_.c_str(), as_the_user_allows) != 0) fail(lease, "made");
    share_with_writers_of_folder(open_to_read(folder_).get(), folder_);
    const Descriptor file{uninterrupted(
        [&] { return ::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, as_the_user_allows & 0666); })};
    const std::string line = line_about(holder);
    struct stat status = {};
    if (file.get() >= 0) errno = ENOSPC;  // a write of a part leaves it as it is
    if (file.get() < 0 ||
        uninterrupted([&] { return ::write(file.get(), line.data(), line.size()); }) != std::ssize(line) ||
        ::fstat(file.get(), &status) != 0) {
      const int error = errno;
      remove();
      errno = error;
      fail(lease, "made");
    }
    share_with_writers_of_folder(file.get(), file_);
    made_ = status.st_mtim;
  }
  Draft(const Draft&) = delete;
  ~Draft() { remove(); }

  /// Now, by the file system's clock.
  const timespec& made() const { return made_; }

  bool move_to(const fs::path& lease) const { return ::rename(folder_.c_str(), lease.c_str()) == 0; }

 private:
  void remove() const {
    const int error = errno;
    ::unlink(file_.c_str());
    ::rmdir(folder_.c_str());
    errno = error;
  }

  fs::path folder_, file_;
  timespec made_;
};

}  // namespace

bool Lease::Seen::operator==(const Seen& other) const {
  return file == other.file && renewed.tv_sec == other.renewed.tv_sec && renewed.tv_nsec == other.renewed.tv_nsec;
}

Lease::Lease(fs::path path, LeaseTimes times) : path_{std::move(path)}, times_{times}, file_{path_ / self_.key} {}

Lease::~Lease() {
  if (!renewing_.joinable()) return;
  {
    const std::lock_guard lock{mutex_};
    is_given_up_ = true;
  }
  wake_.notify_one();
  renewing_.join();
  give_up();
}

void Lease::give_up() {
  ::unlink(file_.c_str());
  ::rmdir(path_.c_str());  // nothing happens if it is another's by now
}

Lease::Attempt Lease::attempt() {
  const Draft draft{path_, self_};
  if (!draft.move_to(path_)) {
    const int error = errno;
    // In a sticky folder, nobody may move anything to where another user's lease is, empty or not.
    const bool is_denied = error == EPERM || error == EACCES;
    // The draft is gone if somebody cleaned up while this process was stopped.
    if (error != ENOTEMPTY && error != EEXIST && error != ENOENT && !is_denied) fail(path_, "made");
    std::optional<Seen> seen = look();
    if (seen) empty_for_.reset();
    if (is_denied && !seen) require_other_user_leaves(error);
    // A server that hears of a move twice denies the second.
    if (!seen || seen->file != file_) return judge(std::move(seen), draft.made());
  }
  remove_what_killed_ones_left(draft.made());
  try {
    renewing_ = start_thread("that renews " + path_.string(), [this] { renew_until_given_up(); });
  } catch (...) {
    give_up();
    throw;
  }
  return Attempt::taken;
}

/// What is in the lease; nothing if it is free. CheckpointError if that cannot be seen.
std::optional<Lease::Seen> Lease::look() const {
  std::error_code error;
  for (fs::directory_iterator entry{path_, error}, end; !error && entry != end; entry.increment(error)) {
    // A file that is gone, and still open somewhere, has another name on a network file system.
    if (entry->path().filename().string().starts_with(".nfs")) continue;
    if (const auto renewed = touched(entry->path())) return Seen{entry->path(), *renewed};
    if (errno != ENOENT && errno != ESTALE) fail(path_, "read");
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    errno = error.value();
    fail(path_, "read");
  }
  return std::nullopt;
}

std::optional<LockHolder> Lease::holder() const {
  try {
    const std::optional<Seen> seen = look();
    return seen ? parse_holder(text_of(seen->file)) : std::nullopt;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

/// Another user who gives an empty lease up removes it a moment later. One who was killed does not.
void Lease::require_other_user_leaves(int error) {
  if (!empty_for_) empty_for_.emplace(steady_now(), longest_look());
  if (empty_for_->look(steady_now()) < CountedTime::Seconds{2 * times_.renewed_every}) return;
  std::error_code ignored;
  const bool is_there = fs::exists(path_, ignored);
  errno = error;
  fail(path_, is_there ? "taken over from a process that is gone" : "made");
}

/// What counts between two attempts, which come as often.
CountedTime::Seconds Lease::longest_look() const {
  return CountedTime::Seconds{times_.renewed_every} / 4;
}

Lease::Attempt Lease::judge(std::optional<Seen> seen, const timespec& now) {
  if (!watched_ || !seen) {
    watched_for_.emplace(steady_now(), longest_look());
    watched_ = std::move(seen);
    return Attempt::undecided;
  }
  if (*watched_ != *seen) {
    watched_.reset();
    return Attempt::held;
  }
  // The file system's clock may be set, so even an old one gets the time in which its holder would renew it.
  const bool is_old = between(watched_->renewed, now) > times_.lost_after;
  // If both were stopped, such as with their machine, the holder has not had the time in between either.
  const std::chrono::duration<double> enough = is_old ? 2 * times_.renewed_every : times_.lost_after;
  if (watched_for_->look(steady_now()) >= enough && ::unlink(watched_->file.c_str()) != 0 && errno != ENOENT &&
      errno != ESTALE)
    fail(path_, "taken over from a process that is gone");
  return Attempt::undecided;
}

bool Lease::renew() {
  if (lost_) return false;
  if (::utimensat(AT_FDCWD, file_.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0) {
    warned_ = false;
  } else if (errno == ENOENT || errno == ENOTDIR) {
    lost_ = true;
  } else if (!warned_.exchange(true)) {
    log::warning(fmt::format("{} cannot be renewed: {}; after {} s another training may take it", path_.string(),
                             error_text(errno), times_.lost_after / std::chrono::seconds{1}));
  }
  return !lost_;
}

void Lease::renew_until_given_up() {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, times_.renewed_every, [&] { return is_given_up_; })) {
    lock.unlock();
    try {
      (void)renew();
    } catch (const std::exception&) {  // no memory to warn
    }
    lock.lock();
  }
}

/// A draft lives only for a moment, so an old one was left by a killed process.
void Lease::remove_what_killed_ones_left(const timespec& now) const {
  std::error_code ignored;
  const std::string prefix = path_.filename().string() + "-";
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  for (fs::directory_iterator entry{folder, ignored}, end; !ignored && entry != end; entry.increment(ignored)) {
    std::error_code left;
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    if (const auto made = touched(entry->path()); made && between(*made, now) > times_.lost_after)
      fs::remove_all(entry->path(), left);
  }
}

}  // namespace lockstep
