// Parts of lockstep in libraries of their own, which are opened when they are asked for: what they link is not needed
// elsewhere.
#pragma once

#include <string>

namespace lockstep {

/// What came of opening one.
struct PartLibrary {
  void* symbol = nullptr;  ///< null if the library could not be opened, or has no such symbol
  bool was_found = true;   ///< false if no folder that is searched has it
  /// Why it could not be opened: it was not found, and in which folders, or a library that it needs was not. Names the
  /// file.
  std::string trouble = {};
};

/// Opens `file` as dlopen finds it, and looks for `symbol`. Its symbols are for nobody else. It stays open until the
/// process ends.
PartLibrary open_part(const char* file, const char* symbol);

}  // namespace lockstep
