// What a process does with signals before it has said anything about them: as its parent left them.
#pragma once

namespace lockstep {

/// From here on a write to a reader who is gone (SIGPIPE), or beyond the limit of a file's size (SIGXFSZ, ulimit -f),
/// fails instead of ending the process. Leaves handlers alone.
void let_writes_fail();

/// For the beginning of `main`: writes fail, no signal is blocked, and children leave an exit code (SIGCHLD), whatever
/// the parent has blocked or ignored. What it ignores otherwise stays ignored: nohup means it for SIGHUP, and a shell
/// for SIGINT of a job in the background.
void settle_inherited_signals();

}  // namespace lockstep
