// The hosts that a job may use, in the words of mpirun's --host and --hostfile.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::run {

struct Host {
  std::string name;
  int slots;  ///< how many ranks it takes
  bool operator==(const Host&) const = default;
};

/// "a:2,b:2"; one slot where no number is given. ConfigError, naming `option`, for anything else.
std::vector<Host> parse_host_list(const std::string& option, std::string_view text);

/// Lines "a slots=2" or "a:2"; what follows # is a comment. ConfigError, naming `file` and the line, for anything else:
/// mpirun would take a host without slots for one with as many as it has cores, which cannot be known here.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& file);

/// The text of the file `name`. ConfigError, which begins with `option`, if it cannot be read or is no regular file.
std::string read_hostfile(const std::string& option, const std::string& name);

/// The names of those that are not this machine.
std::vector<std::string> elsewhere(std::span<const Host> hosts, std::string_view this_host);

/// The opposite of parse_host_list.
std::string to_host_list(std::span<const Host> hosts);

int slots_of(std::span<const Host> hosts);

/// Of the name of a host, without that of a user: "node1" of "me@node1.cluster". An address as a whole.
std::string_view first_label(std::string_view name);

/// Which of `hosts` is the one that a line of a job calls `name`: the same name, or the same first label.
/// `this_host` is what this machine calls itself, which may be "localhost" in the list. Nothing if it is none of them.
std::optional<std::size_t> find_host(std::span<const Host> hosts, std::string_view name, std::string_view this_host);

}  // namespace lockstep::run
