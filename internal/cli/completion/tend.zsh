#compdef tend
# zsh completion of tend; use: source <(tend completion zsh)
#
# What fits is asked of "tend complete". Its answer may hold words of a daemon on
# another machine: they are read as lines, quoted by compadd, and never evaluated.
_tend() {
  local line word open
  local -a fit shown
  while IFS= read -r line; do
    word=${line%%$'\t'*}
    case $word in
    :files) _files; return ;;
    :dirs) _files -/; return ;;
    :program)
      shift $(( ${line#*$'\t'} )) words
      (( CURRENT -= ${line#*$'\t'} ))
      _normal
      return ;;
    :nospace) open=1 ;;
    :*) ;;
    *)
      fit+=("$word")
      if [[ $line == *$'\t'?* ]]; then shown+=("$word  -- ${line#*$'\t'}"); else shown+=("$word"); fi ;;
    esac
  done < <(tend complete zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
  if [[ -n $open ]]; then compadd -V tend -S '' -l -d shown -a fit
  else compadd -V tend -l -d shown -a fit; fi
}
if [[ $funcstack[1] == _tend ]]; then _tend "$@"; else compdef _tend tend; fi
