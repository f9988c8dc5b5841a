// Where the Python program is.
#pragma once

#include <string>
#include <vector>

#include <lockstep/core/base/here.hpp>

namespace lockstep::python {

/// With Python's lock, when the module is loaded. `place_of_call` skips files in these folders and in Python's standard
/// library, `of_python`, except installed packages there.
void set_library_folders(std::vector<std::string> folders, std::string of_python);

/// LOCAL. Takes Python's lock. The line that led to this call: of the nearest frame of the user's code on this thread,
/// or else, as on a thread of autograd, on the main one. Unknown if Python has ended.
Here place_of_call();

/// The same, and whether it calls for a backward pass of PyTorch's.
struct Place {
  Here here;
  bool is_backward = false;
};
Place place_and_pass();

/// " (train.py:12)", as it follows what happened there; empty for an unknown place.
std::string bracketed(const Here& here);

}  // namespace lockstep::python
