#include "control/stack_text.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/descriptor.hpp"

namespace lockstep {
namespace {

/// A file's bytes, read as they are needed.
class MappedFile {
 public:
  explicit MappedFile(const char* path) : file_{::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {
    struct stat status = {};
    if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0)
      return;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const begin = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_.get(), 0);
    if (begin != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(begin), size};
  }
  MappedFile(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  /// Part of it as `T`s. Empty if it does not hold them all.
  template <class T>
  std::span<const T> part(std::uint64_t offset, std::uint64_t count) const {
    if (offset % alignof(T) != 0 || offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) return {};
    return {reinterpret_cast<const T*>(bytes_.data() + offset), static_cast<std::size_t>(count)};
  }

 private:
  Descriptor file_;
  std::span<const std::byte> bytes_;
};

/// The name of the function at that address of a library, from the table that linkers leave in its file for debuggers:
/// also functions that other libraries cannot see. Empty if there is none.
std::string name_in_file(const char* path, std::uint64_t address) {
  const MappedFile file{path};
  const auto header = file.part<ElfW(Ehdr)>(0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return {};
  const auto sections = file.part<ElfW(Shdr)>(header[0].e_shoff, header[0].e_shnum);
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const auto& names = sections[section.sh_link];
    const auto text = file.part<char>(names.sh_offset, names.sh_size);
    for (const auto& symbol : file.part<ElfW(Sym)>(section.sh_offset, section.sh_size / sizeof(ElfW(Sym)))) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= text.size()) continue;
      if (address < symbol.st_value || address - symbol.st_value >= symbol.st_size) continue;
      const auto name = text.subspan(symbol.st_name);
      return {name.begin(), std::ranges::find(name, '\0')};
    }
  }
  return {};
}

std::string readable_name(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable{abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                        std::free};
  // Instances of templates may fill pages.
  constexpr std::size_t longest = 300;
  std::string text = status == 0 && readable ? readable.get() : name;
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

/// Not in the table of a library: code made at run time.
std::string line_of_frame(std::size_t number, void* frame) {
  // A return address may be the beginning of the next function.
  const auto address = reinterpret_cast<std::uintptr_t>(frame) - (number == 0 ? 0 : 1);
  Dl_info found = {};
  link_map* library = nullptr;
  const bool is_known =
      ::dladdr1(reinterpret_cast<void*>(address), &found, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) != 0 &&
      library && found.dli_fname;
  if (!is_known) return fmt::format("#{:<2} {}  (in no library)\n", number, fmt::ptr(frame));
  const bool is_program = library->l_name == nullptr || *library->l_name == '\0';
  const std::uint64_t offset = address - library->l_addr;
  std::string name = name_in_file(is_program ? "/proc/self/exe" : found.dli_fname, offset);
  if (name.empty() && found.dli_sname) name = found.dli_sname;
  return fmt::format("#{:<2} {}  ({}+{:#x})\n", number, name.empty() ? "?" : readable_name(name),
                     std::filesystem::path{found.dli_fname}.filename().string(), offset);
}

std::string first_line_of(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream{file}, line);
  return line;
}

std::filesystem::path folder_of_thread(int thread) {
  return fmt::format("/proc/self/task/{}", thread);
}

std::string_view meaning_of(char state) {
  switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "uninterruptible";
    case 'T': return "stopped";
    case 't': return "traced";
    case 'Z': return "ended";
    default: return "other";
  }
}

}  // namespace

std::string describe(const RawStack& stack) {
  std::string text;
  for (std::size_t i = 0; i < stack.count; ++i) text += line_of_frame(i, stack.frames[i]);
  return text;
}

std::string describe_thread(int thread) {
  const std::string status = first_line_of(folder_of_thread(thread) / "stat");
  const auto after_name = status.rfind(") ");
  if (after_name == status.npos || after_name + 2 >= status.size()) return "gone";
  const char state = status[after_name + 2];
  const std::string place = first_line_of(folder_of_thread(thread) / "wchan");
  return fmt::format("state {} ({}){}", state, meaning_of(state),
                     place.empty() || place == "0" ? "" : fmt::format(", in {}", place));
}

std::string describe_threads(int except) {
  constexpr std::size_t most = 100;
  std::vector<int> threads;
  std::error_code ignored;
  for (const auto& each : std::filesystem::directory_iterator{"/proc/self/task", ignored})
    if (const int thread = std::atoi(each.path().filename().c_str()); thread != except) threads.push_back(thread);
  std::ranges::sort(threads);
  std::string text;
  for (std::size_t i = 0; i < std::min(most, threads.size()); ++i)
    text += fmt::format("{}  {}  {}\n", threads[i], first_line_of(folder_of_thread(threads[i]) / "comm"),
                        describe_thread(threads[i]));
  if (threads.size() > most) text += fmt::format("and {} more\n", threads.size() - most);
  return text;
}

}  // namespace lockstep
