#include "python/place.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/python_headers.h>

#include "core/base/site.hpp"
#include "python/python_lock.hpp"

namespace lockstep::python {
namespace {

// With Python's lock. They live as long as the process, because other ranks' messages may tell a place at any time.
struct Files {
  std::vector<std::string> folders;
  std::string of_python;
  std::set<std::string, std::less<>> names;
};

Files& files() {
  static Files* const all = new Files;
  return *all;
}

bool is_of_user(std::string_view file) {
  if (file.empty() || file.front() == '<') return false;
  if (std::ranges::any_of(files().folders, [&](const std::string& folder) { return file.starts_with(folder); }))
    return false;
  if (!file.starts_with(files().of_python)) return true;
  return file.find("/site-packages/") != file.npos || file.find("/dist-packages/") != file.npos;
}

/// The text must live on: a place of the program outlives its code.
const char* kept(std::string_view file) {
  auto found = files().names.find(file);
  if (found == files().names.end()) found = files().names.emplace(file).first;
  return found->c_str();
}

std::optional<Place> place_on(PyThreadState* thread) {
  std::optional<Place> nearest;
  bool is_backward = false;
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  while (frame) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    Py_ssize_t size = 0;
    const char* const name = PyUnicode_AsUTF8AndSize(code->co_filename, &size);
    if (!name) PyErr_Clear();
    const std::string_view file = name ? std::string_view{name, static_cast<std::size_t>(size)} : std::string_view{};
    const bool is_found = is_of_user(file);
    is_backward = is_backward || file.ends_with("/torch/autograd/graph.py");
    if (is_found)
      nearest = Place{Here{kept(file), static_cast<std::uint32_t>(PyFrame_GetLineNumber(frame))}, is_backward};
    Py_DECREF(code);
    PyFrameObject* const caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
    if (is_found) break;
  }
  Py_XDECREF(frame);
  return nearest;
}

/// The first that Python has started.
PyThreadState* main_thread() {
  PyThreadState* thread = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
  for (PyThreadState* next = thread; next; next = PyThreadState_Next(next)) thread = next;
  return thread;
}

}  // namespace

void set_library_folders(std::vector<std::string> folders, std::string of_python) {
  files().folders = std::move(folders);
  files().of_python = std::move(of_python);
}

Here place_of_call() {
  return place_and_pass().here;
}

Place place_and_pass() {
  const PythonLock lock;
  if (!lock.is_held()) return {};
  if (const auto place = place_on(PyThreadState_Get())) return *place;
  return place_on(main_thread()).value_or(Place{});
}

std::string bracketed(const Here& here) {
  const std::string site = site_of(here);
  return site.empty() ? site : fmt::format(" ({})", site);
}

}  // namespace lockstep::python
