// Sockets with names in Linux's abstract name space: there as long as somebody listens, in one network namespace.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <sys/socket.h>

#include "core/base/descriptor.hpp"

namespace lockstep {

/// A stream socket that does not block.
Descriptor make_local_socket();

/// Calls `bind` or `connect` with the address of that name, of which the last 107 bytes count. Whether it returned 0.
bool with_abstract_address(std::string_view name, const std::function<int(const sockaddr*, socklen_t)>& call);

/// Whether the process at the other end is of this user. The kernel says whose it was when it connected or began to
/// listen. Anybody may take a name first.
bool is_peer_of_this_user(const Descriptor& socket);

/// The parent of this process, for names that its children share: with its namespace of processes, as others, which may
/// have the same network, count them again from 1.
std::string name_of_parent();

}  // namespace lockstep
