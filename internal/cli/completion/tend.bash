# bash completion of tend; use: source <(tend completion bash)
#
# What fits is asked of "tend complete". Its answer may hold words of a daemon on
# another machine: they are read as lines, quoted, and never evaluated.
_tend() {
  local cur=${2-${COMP_WORDS[COMP_CWORD]}} joined='' line word glue='' i
  local -a words=()
  compopt +o default -o nosort 2>/dev/null
  # readline ends words at = and :, which are parts of words here.
  for (( i = 1; i <= COMP_CWORD; i++ )); do
    word=${COMP_WORDS[i]}
    if [[ ${#words[@]} -gt 0 && -n $word && -z ${word//[=:]/} ]]; then
      words[${#words[@]}-1]+=$word glue=1
    elif [[ -n $glue ]]; then
      words[${#words[@]}-1]+=$word glue=
    else
      words+=("$word")
    fi
  done
  [[ -n ${cur//[=:]/} ]] || cur=
  joined=${words[${#words[@]}-1]}
  local cut=$(( ${#joined} - ${#cur} ))
  COMPREPLY=()
  while IFS= read -r line; do
    word=${line%%$'\t'*}
    case $word in
    :files | :dirs) compopt -o default 2>/dev/null || _tend_lines compgen -f -- "$cur" ;;
    :program)
      if (( ${line#*$'\t'} < ${#words[@]} )); then compopt -o default 2>/dev/null
      else _tend_lines compgen -c -- "$cur"; fi ;;
    :nospace) compopt -o nospace 2>/dev/null ;;
    :*) ;;
    *) printf -v word %q "${word:cut}"; COMPREPLY+=("$word") ;;
    esac
  done < <(tend complete bash -- "${words[@]}" 2>/dev/null)
}

# _tend_lines COMMAND ARG…: each line of its output fits.
_tend_lines() {
  local line
  while IFS= read -r line; do
    printf -v line %q "$line"
    COMPREPLY+=("$line")
  done < <("$@")
}

complete -o default -F _tend tend
