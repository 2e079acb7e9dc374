# fish completion of tend; use: tend completion fish | source
#
# What fits is asked of "tend complete". Its answer may hold words of a daemon on
# another machine: fish takes them as lines, quotes them, and never evaluates them.
function __tend_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    for line in (tend complete fish -- $words "$current" 2>/dev/null)
        set -l parts (string split -m 1 \t -- $line)
        switch $parts[1]
            case ':files'
                __fish_complete_path $current
            case ':dirs'
                __fish_complete_directories $current
            case ':program'
                set -l program $words "$current"
                complete -C (string join ' ' -- (string escape -- $program[(math $parts[2])..-2]) $current)
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c tend -f -k -a '(__tend_complete)'
