#include "kernels/program.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cusim::program {
namespace {

/// A file in memory, as long as it lives.
class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status {};
    if (fstat(file, &status) == 0 && status.st_size > 0) {
      void* const made = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
      if (made != MAP_FAILED) {
        begin_ = static_cast<const std::byte*>(made);
        bytes_ = static_cast<std::size_t>(status.st_size);
      }
    }
    close(file);
  }
  MappedFile(const MappedFile&) = delete;
  ~MappedFile() {
    if (begin_) munmap(const_cast<std::byte*>(begin_), bytes_);
  }

  /// The `count` objects at `offset`; null if the file ends before.
  template <class T>
  const T* at(std::uint64_t offset, std::uint64_t count = 1) const {
    if (!begin_ || offset > bytes_ || (bytes_ - offset) / sizeof(T) < count) return nullptr;
    return reinterpret_cast<const T*>(begin_ + offset);
  }

 private:
  const std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The mangled name of the function at `offset` from where the file is loaded; "" if the file does not say.
std::string symbol_at(const MappedFile& file, std::uint64_t offset) {
  const auto* const header = file.at<ElfW(Ehdr)>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  const auto* const sections = file.at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
  if (!sections) return {};
  for (unsigned at = 0; at < header->e_shnum; ++at) {
    const ElfW(Shdr)& section = sections[at];
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= header->e_shnum) continue;
    const std::uint64_t count = section.sh_size / sizeof(ElfW(Sym));
    const auto* const symbols = file.at<ElfW(Sym)>(section.sh_offset, count);
    const ElfW(Shdr)& names = sections[section.sh_link];
    const auto* const text = file.at<char>(names.sh_offset, names.sh_size);
    if (!symbols || !text) continue;
    for (std::uint64_t symbol = 0; symbol < count; ++symbol)
      if (symbols[symbol].st_value == offset && ELF64_ST_TYPE(symbols[symbol].st_info) == STT_FUNC &&
          symbols[symbol].st_name < names.sh_size)
        return text + symbols[symbol].st_name;
  }
  return {};
}

/// "void a::(anonymous namespace)::relu<float>(float*)" as "relu<float>".
std::string short_name(const std::string& mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (!text) return mangled;
  std::string name = text;
  std::free(text);
  // The name begins after the last space or :: that is in no bracket, and ends where its parameters begin.
  std::size_t begin = 0, end = name.size();
  int depth = 0;
  for (std::size_t at = 0; at < name.size(); ++at) {
    const std::string_view rest = std::string_view{name}.substr(at);
    constexpr std::string_view unnamed = "(anonymous namespace)";
    if (rest.starts_with(unnamed)) {
      at += unnamed.size() - 1;
    } else if (name[at] == '(' && depth == 0) {
      end = at;
      break;
    } else if (name[at] == '<' || name[at] == '(') {
      ++depth;
    } else if (name[at] == '>' || name[at] == ')') {
      --depth;
    } else if (depth == 0 && (name[at] == ' ' || name[at] == ':')) {
      begin = at + 1;
    }
  }
  return name.substr(begin, end - begin);
}

std::string find_name(const void* address) {
  Dl_info module{};
  void* map = nullptr;
  if (dladdr1(address, &module, &map, RTLD_DL_LINKMAP) != 0) {
    const auto* const loaded = static_cast<const link_map*>(map);
    const char* const path = loaded->l_name && *loaded->l_name ? loaded->l_name : "/proc/self/exe";
    const auto offset = reinterpret_cast<std::uint64_t>(address) - loaded->l_addr;
    if (const std::string name = symbol_at(MappedFile{path}, offset); !name.empty()) return short_name(name);
    if (module.dli_sname && module.dli_saddr == address) return short_name(module.dli_sname);
  }
  return fmt::format("{}", fmt::ptr(address));
}

}  // namespace

std::string function_name(const void* address) {
  static std::mutex mutex;
  static auto& names = *new std::map<const void*, std::string>;
  const std::lock_guard lock{mutex};
  const auto [name, is_new] = names.try_emplace(address);
  if (is_new) name->second = find_name(address);
  return name->second;
}

bool is_constant(const void* address) {
  const auto search = [](dl_phdr_info* module, std::size_t, void* sought) -> int {
    const auto offset = reinterpret_cast<std::uint64_t>(*static_cast<const void**>(sought)) - module->dlpi_addr;
    const auto holds = [&](const ElfW(Phdr) & part) { return offset - part.p_vaddr < part.p_memsz; };
    const auto* const begin = module->dlpi_phdr;
    const auto* const end = begin + module->dlpi_phnum;
    return std::any_of(begin, end, [&](const ElfW(Phdr) & part) {
      return holds(part) && (part.p_type == PT_GNU_RELRO || (part.p_type == PT_LOAD && !(part.p_flags & PF_W)));
    });
  };
  return dl_iterate_phdr(search, &address) != 0;
}

}  // namespace cusim::program
