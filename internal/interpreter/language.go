package interpreter

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// Dir is where the programs of kernels are in a sandbox.
const Dir = "/opt/code-interpreter"

// Exit statuses of kernels.
const (
	noZygote = 3 // there is no zygote
	noKernel = 4 // none of its language is installed as Jupyter has them
)

// language is how kernels of a language are started.
type language struct {
	name string
	// first: each sandbox has a context of it from the beginning, whose kernel starts with its first cell.
	first bool
	// argv starts a kernel. If it ends with noZygote, zygote is started, and then again.
	argv, zygote, again []string
	// warm starts one when the zygote has imported everything.
	warm []string
}

// languagesIn are all languages, by the directory of the programs of kernels.
func languagesIn(dir string) []language {
	python := func(args ...string) []string {
		return script(dir, "python/zygote.py", append([]string{"attach"}, args...)...)
	}
	host := func(language string) []string { return script(dir, "foreign/host.py", language) }
	return []language{
		{
			name: Python, first: true, zygote: zygote(dir),
			argv: python(), again: python("wait"), warm: python("wait", "warm"),
		},
		{name: "javascript", first: true, argv: host("javascript")},
		{name: "typescript", argv: host("typescript")},
		{name: "bash", argv: host("bash")},
	}
}

// script runs a program of kernels, which needs no packages.
func script(dir, name string, args ...string) []string {
	return append([]string{dir + "/bin/python", "-I", "-S", dir + "/kernels/" + name}, args...)
}

// StartCommand of the template: the zygote, which [Service.Warm] starts as well.
func StartCommand() string { return "exec " + strings.Join(zygote(Dir), " ") }

func zygote(dir string) []string {
	return []string{dir + "/bin/python", dir + "/kernels/python/zygote.py"}
}

// Python is the language of cells that name none.
const Python = "python"

var aliases = map[string]string{"": Python, "js": "javascript", "ts": "typescript"}

// language finds a language by its name, or an alias of it. Error: *LanguageError.
func (s *Service) language(name string) (language, error) {
	full := strings.ToLower(strings.TrimSpace(name))
	if alias, ok := aliases[full]; ok {
		full = alias
	}
	all := s.languages()
	i := slices.IndexFunc(all, func(l language) bool { return l.name == full })
	if i >= 0 {
		return all[i], nil
	}
	if !otherName.MatchString(full) {
		return language{}, s.unknown(name, "")
	}
	return language{name: full, argv: script(s.dir(), "foreign/host.py", full)}, nil // one of Jupyter's, if it is installed
}

// otherName is what kernels of Jupyter may be named.
var otherName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// unknown says what there is. installed are names of kernels of Jupyter, as the sandbox has them.
func (s *Service) unknown(name, installed string) *LanguageError {
	others := slices.DeleteFunc(strings.Fields(installed), func(name string) bool { return !otherName.MatchString(name) })
	why := "there are " + names(s.languages()) + ", and what is installed in the sandbox as a kernel of Jupyter"
	if len(others) > 0 {
		why += ": " + strings.Join(others, ", ")
	}
	return &LanguageError{name, why}
}

func (s *Service) languages() []language { return languagesIn(s.dir()) }
func (s *Service) dir() string           { return cmp.Or(s.Dir, Dir) }

func names(languages []language) string {
	var all []string
	for _, l := range languages {
		all = append(all, l.name)
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}
