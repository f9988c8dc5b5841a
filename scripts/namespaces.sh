# Nodes that are namespaces of this machine: what scripts/nodes and scripts/slurm-cluster share. Sourced by bash after
# lib.sh. A set of nodes has a folder of its own, $folder, and $head is the name of one that has the network.

marker=made-by-$(basename "$0")
exec_in=
declare -A holder=()

skip() {
  printf '%s: skipped: %s\n' "$(basename "$0")" "$*" >&2
  exit 77
}

require_namespaces() {
  [ "$(id -u)" -eq 0 ] || skip "needs root, for namespaces"
  unshare --net --mount --uts --pid --fork true 2> /dev/null || skip "namespaces are not allowed here"
}

# make_folder WHAT DOWN: for new nodes.
make_folder() {
  mkdir "$folder" 2> /dev/null || fail "$folder is there: $1, or its start was killed; expected $2 first"
  touch "$folder/$marker"
  mkdir "$folder/log"
}

# A link, or a folder that somebody else made, could lead anywhere.
require_own_folder() {
  if [ -L "$folder" ] || { [ -e "$folder" ] && { [ ! -O "$folder" ] || [ ! -e "$folder/$marker" ]; }; }; then
    fail "$folder was not made by this script; expected it to be removed by hand"
  fi
}

# holders [NAME]: the numbers of the first processes in the nodes' namespaces, and without a name also of those that
# make them. They are found by their names: a number in a file might be that of another process by now.
holders() {
  local file words status
  for file in /proc/[0-9]*/cmdline; do
    { mapfile -t -d '' words < "$file"; } 2> /dev/null || continue
    status=${file%cmdline}status
    if [ $# -eq 0 ] && [ ${#words[@]} -gt 4 ] && [ "${words[-4]} ${words[-2]}" = "hold $folder" ]; then
      :
    elif [[ ${words[0]:-} == "lockstep-node $folder "${1:-*} ]]; then
      # Not its child, which has its name for a moment.
      grep -qs '^NSpid:.*[[:space:]]1$' "$status" || continue
    else
      continue
    fi
    # Anybody may give a process of his such a name.
    ! grep -qs '^Uid:[[:space:]]0[[:space:]]' "$status" || basename "${file%/cmdline}"
  done
}

# hold NAME MOUNTS: new namespaces, with a process that keeps them and becomes the parent of their orphans. With it,
# the kernel ends whatever runs there. MOUNTS is run there first; $2 is the folder.
hold() {
  local look
  setsid unshare --net --mount --uts --pid --fork --kill-child --mount-proc bash -c '
    hostname "$1" && mount -t tmpfs tmpfs /dev/shm || exit
    [ ! -e /etc/hosts ] || mount --bind "$2/hosts" /etc/hosts || exit
    eval "$3" || exit
    ip link set lo up
    exec -a "lockstep-node $2 $1" bash -c "while :; do sleep infinity & wait; done"' \
    hold "$1" "$folder" "$2" > "$folder/log/$1" 2>&1 < /dev/null &
  disown  # so that its end is no line
  for ((look = 0; look < 100; ++look)); do
    holder[$1]=$(holders "$1")
    [ -z "${holder[$1]}" ] || return 0
    sleep 0.05
  done
  give_up "cannot make namespaces: $(tail -n 1 "$folder/log/$1")"
}

# inside NAME COMMAND...: in all namespaces of a node, in the present folder.
inside() {
  local process=${holder[$1]:-}
  [ -n "$process" ] || process=$(holders "$1")
  [ -n "$process" ] || fail "$folder has no node $1"
  shift
  $exec_in nsenter --target "$process" --net --mount --uts --pid --wdns="$PWD" "$@"
}

# plug NAME ADDRESS HEAD LINK: a wire from the eth0 of a node to the bridge hub of another.
plug() {
  { ip link add eth0 netns "${holder[$1]}" type veth peer name "$4" netns "${holder[$3]}" &&
    inside "$3" ip link set "$4" master hub up &&
    inside "$1" sh -c "ip addr add $2 dev eth0 && ip link set eth0 up"; } 2>> "$folder/log/$1" ||
    give_up "no network: $(tail -n 1 "$folder/log/$1")"
}

# Ends the nodes and all that runs there, and removes the folder. Commands that were given the network of $head alone
# are not among the processes that end with it.
remove_nodes() {
  local process i network=
  process=$(holders "$head")
  [ -z "$process" ] || network=$(readlink "/proc/$process/ns/net") || true
  [ "$network" != "$(readlink /proc/self/ns/net)" ] || network=
  for ((i = 0; i < 100; ++i)); do
    [ -n "$(holders)$(processes_in "$network")" ] || break
    for process in $(holders) $(processes_in "$network"); do kill -KILL "$process" 2> /dev/null || true; done
    sleep 0.05
  done
  # An mpirun on the head, which has this machine's /tmp, could not remove its own. $TMPDIR may be relative to another
  # folder than the present one.
  rm -rf "$folder" "$(dirname "$folder")/"{ompi,prte}".$head."*
}

# processes_in NETWORK: the numbers of the processes in a namespace that /proc calls so; none for no name.
processes_in() {
  [ -z "$1" ] || find /proc/[0-9]*/ns/net -maxdepth 0 -printf '%l %p\n' 2> /dev/null |
    awk -v network="$1" '$1 == network { split($2, parts, "/"); print parts[3] }' || true
}

give_up() {
  trap - INT TERM HUP EXIT
  remove_nodes
  fail "$*"
}
