# For the run scripts of the suites, which source it: a suite leaves nothing in TMPDIR.
# shellcheck shell=bash

# own_tmp DIR puts TMPDIR below DIR. What had been there is $machine_tmp, which may be empty.
own_tmp() {
	machine_tmp=${TMPDIR-}
	export TMPDIR=$1/tmp
	export NODE_DISABLE_COMPILE_CACHE=1 # npm of Node.js 22 has one there
	mkdir -m 1777 "$TMPDIR"
}

# nothing_left fails, and says what there is, unless all that was made in TMPDIR was removed.
nothing_left() {
	local left
	left=$(ls -A "$TMPDIR")
	[ -n "$left" ] || return 0
	printf '%s\n' "the suite left $(wc -l <<<"$left") in TMPDIR:" "$(head -10 <<<"$left")" >&2
	return 1
}
