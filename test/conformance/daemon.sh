# For the run scripts of the suites, which source it: a tend of their own, which must end well, and Node.js.
# They set $here. TEND_BIN names the binary; without it bin/tend of this checkout is used.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/test/conformance/tidy.sh"
export TEND_BIN=${TEND_BIN:-$root/bin/tend}
[ -x "$TEND_BIN" ] || { echo "$TEND_BIN is missing; run 'make build' first" >&2; exit 1; }

work=$(mktemp -d -t tend-suite.XXXXXX)
chmod 755 "$work" # other users' processes work in it
own_tmp "$work"
daemon=

# descendants PID prints all processes below PID.
descendants() {
	local child
	for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
		echo "$child"
		descendants "$child"
	done
}

# inhabitants prints the processes that belong to this run's daemon: they all
# carry its mark in their environment, also when their parent is gone.
inhabitants() {
	# One grep, as other tests beside this one may run thousands of processes.
	grep -lzsx "TEND_SUITE=$work" /proc/[0-9]*/environ | cut -d/ -f3 || true
}

# start_daemon FLAG… starts tend serve, once; its URL is in $work/url. BASH_ENV
# would be sourced by every command. TMPDIR is the tests' own: sandboxes do not see it.
start_daemon() {
	[ -z "$daemon" ] || return 0
	daemon_flags=("$@")
	local node shown=()
	node=$("$root/scripts/node")
	case $node in
	/usr/*) ;;
	*) shown=(--base-path "$(dirname "$node")") ;; # tests run it inside, too
	esac
	env -u BASH_ENV -u TMPDIR ${machine_tmp:+"TMPDIR=$machine_tmp"} TEND_SUITE="$work" "$TEND_BIN" serve --listen 127.0.0.1:0 --socket none \
		--state-dir "$work/state" --port-file "$work/url" "${shown[@]}" "$@" 2>>"$work/log" &
	daemon=$!
	local i
	for ((i = 0; i < 1200; i++)); do
		[ -s "$work/url" ] && return 0
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.05
	done
	echo "tend does not serve; its log:" >&2
	cat "$work/log" >&2
	return 1
}

# relaunch starts another launcher after one that was killed, as a service manager does. The other roles have gone on.
relaunch() {
	wait "$daemon" 2>/dev/null || true
	daemon=
	start_daemon "${daemon_flags[@]}"
}

# free_port prints a port that nobody has at this moment.
free_port() {
	python3 -c 'import socket
with socket.socket(socket.AF_INET6) as s: # one that nobody has of 127.0.0.1 and of ::1
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(("::", 0))
    print(s.getsockname()[1])'
}

# start_named_daemon FLAG… starts one with names, TLS and a token: TEND_TOKEN.
start_named_daemon() {
	local port
	port=$(free_port)
	(umask 077 && head -c 24 /dev/urandom | base64 | tr '+/' '-_' >"$work/token")
	TEND_TOKEN=$(cat "$work/token")
	export TEND_TOKEN
	start_daemon --tls own --domain "tend.localhost:$port" --token-file "$work/token" "$@"
}

# start_mirror ARGUMENT… makes what test/conformance/mirror serves, in a minute; wait_mirror waits for it, and prints its URL.
mirror=
start_mirror() {
	"$root/scripts/install" debootstrap=debootstrap
	(cd "$root" && CGO_ENABLED=0 go build -o "$work/mirror" ./test/conformance/mirror)
	"$work/mirror" -url "$work/mirror.url" "$@" 2>"$work/mirror.log" &
	mirror=$!
}
wait_mirror() {
	until [ -s "$work/mirror.url" ]; do
		kill -0 "$mirror" 2>/dev/null || { cat "$work/mirror.log" >&2; return 1; }
		sleep 0.2
	done
	cat "$work/mirror.url"
}

# by_domain sets what tend env prints for E2B's clients, and nothing else of theirs. TEND_E2B_URL is the daemon without a name,
# which no client of theirs knows.
by_domain() {
	local variables
	unset E2B_DEBUG E2B_SANDBOX_URL E2B_API_URL E2B_API_KEY
	TEND_E2B_URL=$(cat "$work/url")
	export TEND_E2B_URL
	variables=$("$TEND_BIN" env e2b --url "$TEND_E2B_URL" --state-dir "$work/clients")
	eval "$variables"
}

# stop_daemon ends it as a person would, and finds whatever it leaves behind.
stop_daemon() {
	[ -n "$daemon" ] || return 0
	local pid=$daemon status=0 below left p i
	daemon=
	below=$(descendants "$pid")
	kill -TERM "$pid" 2>/dev/null || { echo "tend had ended before the suites did; its log:" >&2; tail -50 "$work/log" >&2; return 1; }
	wait "$pid" || status=$?
	if [ "$status" -ne 0 ]; then
		echo "tend ended with status $status on SIGTERM; its log:" >&2
		tail -50 "$work/log" >&2
		return 1
	fi
	for ((i = 0; i < 600; i++)); do
		left=$(for p in $below $(inhabitants); do [ -e "/proc/$p/stat" ] && ! grep -qs '^State:.Z' "/proc/$p/status" && echo "$p"; done | sort -u || true)
		[ -z "$left" ] && return 0
		sleep 0.05
	done
	echo "tend left processes behind:" >&2
	# shellcheck disable=SC2086
	ps -o pid,ppid,user,args -p "$(echo $left | tr ' ' ,)" >&2
	# shellcheck disable=SC2086
	kill -KILL $left 2>/dev/null || true
	return 1
}

# cleanup [STATUS] ends the script, with that status or the one that it had.
cleanup() {
	local status=${1-$?}
	stop_daemon || status=1
	[ -z "$mirror" ] || { kill "$mirror"; wait "$mirror"; } || true
	[ "$status" -ne 0 ] || nothing_left || status=1
	if [ "$status" -eq 0 ]; then
		rm -rf "$work"
	else
		echo "the daemon's state is kept in $work" >&2
	fi
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# install_js puts a Node.js that is new enough first in PATH, and the pinned
# packages into $here/js.
install_js() {
	local dir
	dir=$("$root/scripts/node")
	export PATH=$dir:$PATH
	"$root/scripts/npm-ci" "$here/js"
}

# pytests [NAME [FILE…]] runs $here/NAME (python), or these files of it, with the pinned packages.
pytests() {
	local dir=$here/${1-python}
	shift || true
	"$root/scripts/python-venv" "$dir/.venv" "$dir/requirements.txt"
	(cd "$dir" && .venv/bin/python -m pytest ${PYTEST_ARGS:-} --basetemp="$work/pytest" -q -p no:cacheprovider "${@:-.}")
}
