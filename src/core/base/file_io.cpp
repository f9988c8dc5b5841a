#include "core/base/file_io.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file_type.hpp"
#include "core/base/system_error.hpp"

namespace lockstep {
namespace {

/// Calls `read` with what is left of `to`, until that is full or the file ends.
template <class Read>
std::size_t fill(std::span<std::byte> to, std::string_view name, Read&& read) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t count = uninterrupted([&] { return read(to.subspan(done), done); });
    if (count < 0) throw FileError{name, "read", errno};
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

/// Memory that the system refuses is no end of the file.
template <class Text>
void resize(Text& text, std::size_t size, std::string_view name) {
  with_memory(name, [&] { text.resize(size); });
}

}  // namespace

FileError::FileError(std::string_view name, std::string_view done, int code)
    : CheckpointError{fmt::format("{}: cannot be {}: {}", name, done, error_text(code))}, code_{code} {}

FileError::FileError(std::string_view name, std::string_view wrong) : FileError{name, 0, wrong} {}

FileError::FileError(std::string_view name, int code, std::string_view wrong)
    : CheckpointError{fmt::format("{}: {}", name, wrong)}, code_{code} {}

bool is_about_path(int code) {
  switch (code) {
    case 0:  // it is no regular file
    case EACCES:
    case EEXIST:
    case EFBIG:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENODEV:
    case ENOENT:
    case ENOTDIR:
    case ENXIO:
    case EPERM:
    case EROFS:
    case ETXTBSY: return true;
    default: return false;
  }
}

std::optional<Descriptor> find_to_read(const std::filesystem::path& path, std::string_view name) {
  // Without O_NONBLOCK, opening a pipe would block forever.
  Descriptor file{uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); })};
  const int code = errno;
  if (file.get() < 0 && (code == ENOENT || code == ENOTDIR)) return std::nullopt;
  // A socket cannot be opened.
  if (file.get() < 0 && code == ENXIO)
    if (const std::string wrong = why_not_regular(path); !wrong.empty()) throw FileError{name, wrong};
  if (file.get() < 0) throw FileError{name, "read", code};
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) throw FileError{name, "read", errno};
  if (!S_ISREG(status.st_mode))
    throw FileError{name, fmt::format("is {}, not a regular file", name_of_type(status.st_mode))};
  return file;
}

Descriptor open_to_read(const std::filesystem::path& path, std::string_view name) {
  std::optional<Descriptor> file = find_to_read(path, name);
  if (!file) throw FileError{name, "read", ENOENT};
  return *std::move(file);
}

std::size_t read_next(const Descriptor& file, std::span<std::byte> to, std::string_view name) {
  return fill(to, name,
              [&](std::span<std::byte> rest, std::size_t) { return ::read(file.get(), rest.data(), rest.size()); });
}

std::size_t read_at(const Descriptor& file, std::uint64_t offset, std::span<std::byte> to, std::string_view name) {
  return fill(to, name, [&](std::span<std::byte> rest, std::size_t done) {
    return ::pread(file.get(), rest.data(), rest.size(), static_cast<off_t>(offset + done));
  });
}

std::string read_text(const Descriptor& file, std::size_t limit, std::string_view name) {
  constexpr std::size_t first_piece = std::size_t{64} << 10;
  std::string text;
  for (std::size_t held = 0;;) {
    // The file's size would not do: it may grow, and one in /proc has none. A byte more than the limit tells that
    // there are more.
    resize(text, std::min(std::max(first_piece, 2 * held), limit + 1), name);
    held += read_next(file, std::as_writable_bytes(std::span{text}.subspan(held)), name);
    if (held > limit) throw FileError{name, EFBIG, fmt::format("holds more than {} bytes", limit)};
    if (held < text.size()) {
      text.resize(held);
      return text;
    }
  }
}

Descriptor open_output(const std::filesystem::path& path, OpenOutput how, std::string_view name) {
  constexpr mode_t as_the_user_allows = 0666;
  // At its end also where it is emptied: somebody else may do that again.
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | (how == OpenOutput::empty ? O_TRUNC : 0);
  // Otherwise, opening a pipe waits for a reader.
  Descriptor file{uninterrupted([&] { return ::open(path.c_str(), flags | O_NONBLOCK, as_the_user_allows); })};
  const int code = errno;
  if (file.get() >= 0) {
    ::fcntl(file.get(), F_SETFL, flags);
    return file;
  }
  struct stat status = {};
  const bool has_no_reader = code == ENXIO && ::stat(path.c_str(), &status) == 0;
  if (!is_about_path(code)) throw FileError{name, "written", code};
  throw FileError{
      name, code,
      has_no_reader ? fmt::format("is {} that nobody reads", name_of_type(status.st_mode)) : error_text(code)};
}

void write_all(const Descriptor& file, std::string_view bytes, std::string_view name) {
  while (!bytes.empty()) {
    const ssize_t count = uninterrupted([&] { return ::write(file.get(), bytes.data(), bytes.size()); });
    if (count < 0) throw FileError{name, "written", errno};
    if (count == 0) throw FileError{name, "written", EIO};  // of what takes nothing, and would never
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

LineReader::LineReader(Descriptor file, std::string name, std::size_t longest_line)
    : file_{std::move(file)}, name_{std::move(name)}, longest_line_{longest_line} {}

std::optional<LineReader::Line> LineReader::next() {
  for (std::size_t searched = begin_;;) {
    const char* const found =
        searched < end_ ? static_cast<const char*>(std::memchr(buffer_.data() + searched, '\n', end_ - searched))
                        : nullptr;
    const std::size_t size = (found ? static_cast<std::size_t>(found - buffer_.data()) : end_) - begin_;
    if (size > longest_line_)
      throw FileError{fmt::format("{}:{}", name_, number_ + 1), EFBIG,
                      fmt::format("has more than {} bytes", longest_line_)};
    if (!found) {
      searched = end_ - begin_;  // where it will be
      if (read_more()) continue;
      if (size == 0) return std::nullopt;
    }
    const Line line{.text = {buffer_.data() + begin_, size}, .number = ++number_, .is_whole = found != nullptr};
    begin_ += size + (found ? 1 : 0);
    return line;
  }
}

bool LineReader::read_more() {
  constexpr std::size_t usual_size = std::size_t{128} << 10;
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  if (end_ == buffer_.size()) resize(buffer_, std::max(usual_size, 2 * end_), name_);
  const std::span<char> room = std::span{buffer_}.subspan(end_);
  const std::size_t count = read_next(file_, std::as_writable_bytes(room), name_);
  end_ += count;
  return count > 0;
}

}  // namespace lockstep
