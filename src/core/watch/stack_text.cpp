#include "core/watch/stack_text.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include "core/base/descriptor.hpp"

namespace lockstep {
namespace {

/// A file, read as it is needed. It is not mapped: one that cannot be read then would end the process.
class PartsOfFile {
 public:
  explicit PartsOfFile(const char* path) : file_{::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {}

  /// Part of it as `T`s: fewer if it does not hold them all.
  template <class T>
  std::vector<T> part(std::uint64_t offset, std::size_t count) const {
    std::vector<T> read(count);
    char* const begin = reinterpret_cast<char*>(read.data());
    std::size_t size = 0;
    while (size < count * sizeof(T)) {
      const ssize_t more =
          ::pread(file_.get(), begin + size, count * sizeof(T) - size, static_cast<off_t>(offset + size));
      if (more <= 0) break;
      size += static_cast<std::size_t>(more);
    }
    read.resize(size / sizeof(T));
    return read;
  }

 private:
  Descriptor file_;
};

/// The symbol of the function at that address, from a table of symbols.
std::optional<ElfW(Sym)> function_in(const PartsOfFile& file, const ElfW(Shdr) & table, std::uint64_t address) {
  constexpr std::uint64_t most_at_once = 4096;
  const std::uint64_t count = table.sh_size / sizeof(ElfW(Sym));
  for (std::uint64_t done = 0; done < count;) {
    const auto symbols =
        file.part<ElfW(Sym)>(table.sh_offset + done * sizeof(ElfW(Sym)), std::min(most_at_once, count - done));
    if (symbols.empty()) return std::nullopt;
    for (const auto& symbol : symbols)
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && address >= symbol.st_value &&
          address - symbol.st_value < symbol.st_size)
        return symbol;
    done += symbols.size();
  }
  return std::nullopt;
}

/// The name of the function at that address of a library, from the table that linkers leave in its file for debuggers:
/// also functions that other libraries cannot see. Empty if there is none.
std::string name_in_file(const char* path, std::uint64_t address) {
  constexpr std::uint64_t longest = 1 << 16;
  const PartsOfFile file{path};
  const auto header = file.part<ElfW(Ehdr)>(0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return {};
  const auto sections = file.part<ElfW(Shdr)>(header[0].e_shoff, header[0].e_shnum);
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const auto symbol = function_in(file, section, address);
    const auto& names = sections[section.sh_link];
    if (!symbol || symbol->st_name >= names.sh_size) continue;
    const auto name =
        file.part<char>(names.sh_offset + symbol->st_name, std::min(longest, names.sh_size - symbol->st_name));
    return {name.begin(), std::ranges::find(name, '\0')};
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

/// One line. A frame in no library is code made at run time.
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
  for (std::filesystem::directory_iterator each{"/proc/self/task", ignored}, end; !ignored && each != end;
       each.increment(ignored))
    if (const int thread = std::atoi(each->path().filename().c_str()); thread != except) threads.push_back(thread);
  std::ranges::sort(threads);
  std::string text;
  for (std::size_t i = 0; i < std::min(most, threads.size()); ++i)
    text += fmt::format("{}  {}  {}\n", threads[i], first_line_of(folder_of_thread(threads[i]) / "comm"),
                        describe_thread(threads[i]));
  if (threads.size() > most) text += fmt::format("and {} more\n", threads.size() - most);
  return text;
}

}  // namespace lockstep
