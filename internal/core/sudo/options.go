package sudo

import (
	"errors"
	"fmt"
	"strings"
)

// options are what a command line asks for.
type options struct {
	user     string // "": root
	preserve bool   // the whole environment
	keep     []string
	home     bool // HOME is the target's
	login    bool
	shell    bool
	list     bool     // -l, -v: whether it is allowed
	set      []string // VAR=value
	argv     []string
}

const usage = "usage: sudo [-EHnS] [-u user] [-i | -s] [--preserve-env[=list]] [VAR=value] [command [arg ...]]"

var errUsage = errors.New(usage)

// parse reads a command line, without the program's name.
func parse(args []string) (o options, err error) {
	value := func(i *int, rest, name string) (string, error) {
		if rest != "" {
			return rest, nil
		}
		if *i+1 >= len(args) {
			return "", fmt.Errorf("%s needs a value; %s", name, usage)
		}
		*i++
		return args[*i], nil
	}
	i := 0
	for ; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			i++
			break
		}
		if strings.HasPrefix(a, "--") {
			name, rest, given := strings.Cut(a, "=")
			switch name {
			case "--preserve-env":
				if o.preserve = !given; given {
					o.keep = append(o.keep, strings.Split(rest, ",")...)
				}
			case "--user":
				if o.user, err = value(&i, rest, name); err != nil {
					return o, err
				}
			case "--set-home":
				o.home = true
			case "--login":
				o.login = true
			case "--shell":
				o.shell = true
			case "--list", "--validate":
				o.list = true
			case "--non-interactive", "--stdin", "--reset-timestamp", "--remove-timestamp":
			default:
				return o, fmt.Errorf("%s is not supported; %s", name, usage)
			}
			continue
		}
		if len(a) < 2 || a[0] != '-' {
			break
		}
		for j := 1; j < len(a); j++ {
			switch a[j] {
			case 'E':
				o.preserve = true
			case 'H':
				o.home = true
			case 'i':
				o.login = true
			case 's':
				o.shell = true
			case 'l', 'v':
				o.list = true
			case 'n', 'S', 'k', 'K':
			case 'u':
				if o.user, err = value(&i, a[j+1:], "-u"); err != nil {
					return o, err
				}
				j = len(a)
			default:
				return o, fmt.Errorf("-%c is not supported; %s", a[j], usage)
			}
		}
	}
	for ; i < len(args); i++ {
		if name, _, ok := strings.Cut(args[i], "="); !ok || name == "" || strings.Contains(name, "/") {
			break
		}
		o.set = append(o.set, args[i])
	}
	o.argv = args[min(i, len(args)):]
	if o.login && o.shell || len(o.argv) == 0 && !o.login && !o.shell && !o.list {
		return o, errUsage
	}
	return o, nil
}
