package interpreter

import (
	"cmp"
	"slices"
	"strings"
)

// Dir is where the programs of kernels are in a sandbox.
const Dir = "/opt/code-interpreter"

// noZygote is the exit status of a kernel that found no zygote.
const noZygote = 3

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
	script := func(name string, args ...string) []string { // it needs no packages
		return append([]string{dir + "/bin/python", "-I", "-S", dir + "/kernels/" + name}, args...)
	}
	return []language{
		{
			name: Python, first: true, zygote: zygote(dir),
			argv: script("python/zygote.py", "attach"), again: script("python/zygote.py", "attach", "wait"),
			warm: script("python/zygote.py", "attach", "wait", "warm"),
		},
		{name: "javascript", first: true, argv: script("foreign/host.py", "javascript")},
		{name: "typescript", argv: script("foreign/host.py", "typescript")},
		{name: "bash", argv: script("foreign/host.py", "bash")},
	}
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
	if i < 0 {
		return language{}, &LanguageError{Language: name, Why: "there are " + names(all)}
	}
	return all[i], nil
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
