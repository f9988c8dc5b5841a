// How often the layers are in this process, besides in the program itself.
#pragma once

#include <cstddef>
#include <string_view>

#include <link.h>

namespace lockstep::test {

/// Files called liblockstep.so, loaded from wherever.
inline int loaded_libraries() {
  int count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* file, std::size_t, void* number) {
        if (std::string_view{file->dlpi_name}.find("/liblockstep.so") != std::string_view::npos)
          ++*static_cast<int*>(number);
        return 0;
      },
      &count);
  return count;
}

}  // namespace lockstep::test
