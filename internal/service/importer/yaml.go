package importer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/service/config"
)

// File is a file of another supervisor, as services.
type File struct {
	// From says what it was: "pm2", "Procfile" or "process-compose".
	From     string
	header   []string // in place of where it is from
	services []*service
	names    map[string]bool // of services
	notes    []string        // about the whole file
}

// service is one in the making. Values are YAML already.
type service struct {
	name  string
	keys  []key
	env   map[string]string
	notes []string
}

type key struct{ name, value string }

func (s *service) set(name, value string) {
	if value != "" {
		s.keys = append(s.keys, key{name, value})
	}
}

func (s *service) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// Notes say what has no equivalent, each with the service that it is about.
func (f *File) Notes() []string {
	all := slices.Clone(f.notes)
	for _, s := range f.services {
		for _, n := range s.notes {
			all = append(all, s.name+": "+n)
		}
	}
	return all
}

// YAML is the file as a tend.yaml.
func (f *File) YAML() []byte {
	b := new(strings.Builder)
	if f.header == nil {
		fmt.Fprintf(b, "# From a file of %s.\n", f.From)
	}
	for _, line := range f.header {
		b.WriteString("# " + comment(line) + "\n")
	}
	for _, n := range f.notes {
		b.WriteString("# " + comment(n) + "\n")
	}
	b.WriteString("services:\n")
	for _, s := range f.services {
		fmt.Fprintf(b, "  %s:\n", word(s.name))
		for _, k := range s.keys {
			fmt.Fprintf(b, "    %s: %s\n", k.name, k.value)
		}
		if len(s.env) > 0 {
			b.WriteString("    env:\n")
			for _, name := range slices.Sorted(maps.Keys(s.env)) {
				fmt.Fprintf(b, "      %s: %s\n", word(name), word(s.env[name]))
			}
		}
		for _, n := range s.notes {
			b.WriteString("    # " + comment(n) + "\n")
		}
	}
	return []byte(b.String())
}

// comment is a text that cannot end a comment.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

var plain = lazyregexp.New(`^[A-Za-z0-9/.][A-Za-z0-9_./@+-]*$`)

// word is a scalar of YAML.
func word(text string) string {
	if plain.MatchString(text) && !slices.Contains([]string{"null", "Null", "NULL"}, text) && text != "..." {
		return text
	}
	b := new(strings.Builder)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string can always be
	return strings.NewReplacer("\u0085", `\u0085`, "\x7f", `\u007f`).Replace(strings.TrimSuffix(b.String(), "\n"))
}

func list(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = word(w)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// mapping writes pairs of keys and YAML values, without the empty ones.
func mapping(pairs ...string) string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, pairs[i]+": "+pairs[i+1])
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "{" + strings.Join(out, ", ") + "}"
}

var notInName = lazyregexp.New(`[^A-Za-z0-9_.-]+`)

// add takes a new service; its name is made one that a service may have.
func (f *File) add(name string) *service {
	clean := strings.Trim(notInName.ReplaceAllString(name, "-"), "-_.")
	if clean == "" {
		clean = "service"
	}
	clean = strings.TrimRight(clean[:min(len(clean), config.MaxNameLen-5)], "-_.")
	unique := clean
	for n := 2; f.names[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", clean, n)
	}
	if f.names == nil {
		f.names = map[string]bool{}
	}
	f.names[unique] = true
	s := &service{name: unique, env: map[string]string{}}
	if unique != name {
		s.note("its name was %.100q", name)
	}
	f.services = append(f.services, s)
	return s
}

// full is an error once there are more services than may be: at what would be another one.
func (f *File) full(file string, n *config.Node) error {
	if len(f.services) < config.MaxServices {
		return nil
	}
	return problem(file, n, "declares more than %d services", config.MaxServices)
}

// problem is an error at a place.
func problem(file string, n *config.Node, format string, args ...any) error {
	p := &config.Problem{File: file, Text: fmt.Sprintf(format, args...)}
	if n != nil {
		p.Line, p.Column = n.Line, n.Column
	}
	return config.Problems{p}
}

// check makes sure that what was made is accepted; else the fault is said with the place
// in what was made.
func (f *File) check(name string) (*File, error) {
	if len(f.services) == 0 {
		return nil, problem(name, nil, "declares nothing that runs")
	}
	if _, err := config.Parse(name+" as tend.yaml", f.YAML()); err != nil {
		return nil, err
	}
	return f, nil
}
