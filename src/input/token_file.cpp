// Source of the format: https://github.com/karpathy/llm.c, dev/data/data_common.py and llmc/dataloader.h.
#include "input/token_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <lockstep/base/error.hpp>

#include "base/descriptor.hpp"
#include "input/failure.hpp"
#include "input/token_pieces.hpp"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the numbers in the files are little-endian");

constexpr std::size_t header_numbers = 256;
constexpr std::size_t header_bytes = header_numbers * sizeof(std::int32_t);
constexpr std::int32_t token_magic = 20240520;
constexpr std::int32_t version = 1;  // of 16-bit tokens

[[noreturn]] void fail_to_read(const std::filesystem::path& path) {
  fail_file(path, fmt::format("cannot be read: {}", std::strerror(errno)));
}

/// A whole file in memory that the system fills as it is read.
class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct ::stat facts;
    if (file.get() < 0 || ::fstat(file.get(), &facts) != 0) fail_to_read(path);
    if (!S_ISREG(facts.st_mode)) fail_file(path, "is not a regular file");
    if (facts.st_size == 0) fail_file(path, "is empty; expected a file of tokens");
    bytes_ = static_cast<std::size_t>(facts.st_size);
    memory_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (memory_ == MAP_FAILED)
      fail_file(path, fmt::format("{} bytes cannot be mapped: {}", bytes_, std::strerror(errno)));
  }
  Mapping(Mapping&& other) noexcept : memory_{std::exchange(other.memory_, MAP_FAILED)}, bytes_{other.bytes_} {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, bytes_);
  }

  std::span<const std::uint8_t> bytes() const { return {static_cast<const std::uint8_t*>(memory_), bytes_}; }

 private:
  void* memory_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

class MappedTokens final : public TokenSequence {
 public:
  /// After the header.
  explicit MappedTokens(Mapping file) : file_{std::move(file)} {}

  std::int64_t count() const override { return std::ssize(tokens()); }
  bool are_bytes() const override { return false; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    require_tokens(first, std::ssize(to), count());
    std::copy_n(tokens().begin() + first, to.size(), to.begin());
  }

  std::span<const std::uint16_t> tokens() const {
    const auto content = file_.bytes().subspan(header_bytes);
    return {reinterpret_cast<const std::uint16_t*>(content.data()), content.size() / sizeof(std::uint16_t)};
  }

 private:
  Mapping file_;
};

void require_header(const std::filesystem::path& path, std::span<const std::uint8_t> file) {
  if (file.size() > 1 && file[0] == 0x1f && file[1] == 0x8b)
    fail_file(path, "is packed (gzip); expected a file of tokens, which is mapped and must be unpacked before");
  if (!begins_token_file(file))
    fail_file(path,
              fmt::format("is no file of tokens; expected one as llm.c writes it, which begins with {} (--vocabulary)",
                          token_magic));
  if (file.size() < header_bytes)
    fail_file(path, fmt::format("truncated: expected a header of {} bytes, found {}", header_bytes, file.size()));
  std::array<std::int32_t, 3> header;
  std::memcpy(header.data(), file.data(), sizeof header);
  if (header[1] != version)
    fail_file(path, fmt::format("is of version {}; expected {}, which has tokens of 16 bits", header[1], version));
  const std::int64_t tokens = header[2];
  const std::uint64_t expected = header_bytes + static_cast<std::uint64_t>(tokens) * sizeof(std::uint16_t);
  if (tokens < 1) fail_file(path, fmt::format("its header announces {} tokens; expected 1 or more", tokens));
  if (file.size() != expected)
    fail_file(path, fmt::format("{}: expected {} bytes (a header of {} and {} tokens), found {}",
                                file.size() < expected ? "truncated" : "has trailing bytes", expected, header_bytes,
                                tokens, file.size()));
}

}  // namespace

bool begins_token_file(std::span<const std::uint8_t> first) {
  return first.size() >= sizeof token_magic && std::memcmp(first.data(), &token_magic, sizeof token_magic) == 0;
}

std::shared_ptr<const TokenSequence> map_token_file(const std::filesystem::path& path, std::int64_t vocabulary) {
  Mapping file{path};
  require_header(path, file.bytes());
  auto sequence = std::make_shared<MappedTokens>(std::move(file));
  const std::span<const std::uint16_t> tokens = sequence->tokens();
  const auto wrong = std::ranges::find_if(tokens, [&](std::uint16_t token) { return token >= vocabulary; });
  if (wrong != tokens.end())
    fail_file(path, fmt::format("token {} (counted from 0) is {}; expected 0 to {} (--vocabulary {})",
                                wrong - tokens.begin(), *wrong, vocabulary - 1, vocabulary));
  return sequence;
}

}  // namespace lockstep
