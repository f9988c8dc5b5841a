// What a process holds, as one line: bytes of memory, open descriptors, threads. In C's library alone.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

/// The number after `word` in a file of the kernel's, which one read has whole; -1 if there is none.
inline long number_after(const char* word, const char* path) {
  char text[4096] = {};
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t length = ::read(file, text, sizeof text - 1);
  ::close(file);
  const char* const found = length > 0 ? std::strstr(text, word) : nullptr;
  return found ? std::atol(found + std::strlen(word)) : -1;
}

inline long open_descriptors() {
  long entries = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (!folder) return -1;
  while (::readdir(folder)) ++entries;
  ::closedir(folder);
  return entries - 3;  // ".", "..", and the folder's own
}

/// A page that n processes share counts for an n-th.
inline void print_footprint() {
  const long kibibytes = number_after("Pss:", "/proc/self/smaps_rollup");
  std::printf("%ld %ld %ld\n", 1024 * kibibytes, open_descriptors(), number_after("Threads:", "/proc/self/status"));
}
