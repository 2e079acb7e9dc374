# The engine of bash: it runs cells in this shell, which keeps their variables, functions and directory. See host.py.

# An interrupt ends the cell, not only the command that runs: from then on each command of it is a return.
__tend_stop() { ((${#FUNCNAME[@]} <= 2)) || return 2; }
trap '__tend_end=KeyboardInterrupt; shopt -s extdebug; trap __tend_stop DEBUG' INT

__tend_over() {
	((__tend_status == 0)) ||
		printf '{"type": "error", "name": "%s", "value": "%d", "traceback": "the cell ended with the status %d"}\n' \
			"$__tend_end" "$__tend_status" "$__tend_status" >&99
	for __tend_name in "${__tend_new[@]}"; do unset -v "$__tend_name"; done
	for __tend_name in "${!__tend_before[@]}"; do export "$__tend_name=${__tend_before[$__tend_name]}"; done
	__tend_runs=
	printf '{"type": "done"}\n' >&99
}

printf '{"type": "ready"}\n' >&99
__tend_runs=
while :; do # a cell may break out of the loop inside of this one, or continue it
	while [[ $__tend_runs ]] || IFS= read -r -d '' -u 98 __tend_left || exit; do
		if [[ ! $__tend_runs ]]; then
			trap - DEBUG # an interrupt of the cell before may have come after its end
			shopt -u extdebug
			__tend_end=ExitStatus
			declare -A __tend_before=()
			__tend_new=()
			while ((__tend_left-- > 0)); do
				IFS= read -r -d '' -u 98 __tend_name
				IFS= read -r -d '' -u 98 __tend_value
				[[ $__tend_name =~ ^[A-Za-z_][A-Za-z0-9_]*$ && $__tend_name != __tend_* ]] || continue
				if [[ -v $__tend_name ]]; then __tend_before[$__tend_name]=${!__tend_name}; else __tend_new+=("$__tend_name"); fi
				export "$__tend_name=$__tend_value"
			done
			IFS= read -r -d '' -u 98 __tend_code
			__tend_status=0 __tend_runs=yes
			# shellcheck disable=SC1091
			source /dev/stdin <<<"$__tend_code" 98<&- 99>&-
			__tend_status=$?
		fi
		trap - DEBUG
		shopt -u extdebug
		__tend_over
	done
done
