// What tests of the bridge start as jobs.
#pragma once

namespace lockstep::test {

/// Each has the command line of the program, whose own arguments begin at argv[2], and returns its exit code.
int victim(int argc, char** argv);
int guest(int argc, char** argv);
int exchange(int argc, char** argv);
int models(int argc, char** argv);

}  // namespace lockstep::test
