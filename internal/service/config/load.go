package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// FileName is the file that is read where none is named.
const FileName = "tend.yaml"

// Parse reads the text of a file. name stands in errors, which are Problems. Paths
// stay as they are written, and files that it names are not read.
func Parse(name string, data []byte) (*Config, error) {
	c, d, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	if d.check(c); len(d.problems) > 0 {
		return nil, d.sorted()
	}
	return c, nil
}

// Source is a file with all that it needs, so that it can be read where its
// directory is not.
type Source struct {
	Name string // in errors
	Dir  string // absolute; relative directories are below it
	Text []byte
	// EnvFiles are the contents of the files that env_file names, by the names there.
	EnvFiles map[string][]byte
	// missing says why one of them could not be read.
	missing map[string]error
}

// Open reads a file, and those that env_file names. What is wrong in them is said by
// [Source.Config].
func Open(path string) (*Source, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	text, err := ReadFile(full)
	if err != nil {
		return nil, err
	}
	return OpenText(path, filepath.Dir(full), text), nil
}

// OpenText is Open of a text that is to be taken as a file of an absolute directory.
func OpenText(name, dir string, text []byte) *Source {
	src := &Source{Name: name, Dir: dir, Text: text, EnvFiles: map[string][]byte{}, missing: map[string]error{}}
	c, _, err := parse(name, text)
	if err != nil {
		return src // as Config will say
	}
	left := MaxFileBytes
	for _, service := range c.Names() {
		for _, name := range c.Services[service].EnvFile {
			if src.EnvFiles[name] != nil || src.missing[name] != nil {
				continue
			}
			data, err := ReadFile(below(src.Dir, name))
			if left -= len(data); err == nil && left < 0 {
				err = fmt.Errorf("with it the files of all services have more than %d bytes", MaxFileBytes)
			}
			if err != nil {
				src.missing[name] = err
			} else {
				src.EnvFiles[name] = data
			}
			if left < 0 {
				return src
			}
		}
	}
	return src
}

// below is a path of a file as it is seen from its directory.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// Config reads the source. Its errors are Problems.
func (src *Source) Config() (*Config, error) {
	c, d, err := parse(src.Name, src.Text)
	if err != nil {
		return nil, err
	}
	d.dir = src.Dir
	d.check(c)
	read, left := map[string]map[string]string{}, MaxFileVars
	for _, name := range c.Names() {
		s := c.Services[name]
		if s.Sandbox == "" {
			s.Cwd = below(src.Dir, s.Cwd)
		}
		d.placeSockets(s)
		if s.Adopt != nil && s.Adopt.PIDFile != "" {
			s.Adopt.PIDFile = below(s.Cwd, s.Adopt.PIDFile)
		}
		if s.Log.File != "" {
			s.Log.File = s.logFile(src.Dir)
		}
		for _, file := range s.EnvFile {
			vars, err := read[file], error(nil)
			if vars == nil {
				if vars, err = src.vars(file); err == nil {
					read[file] = vars
				}
			}
			if left -= len(vars); left < 0 {
				err = fmt.Errorf("with it the services have more than %d variables of such files", MaxFileVars)
			}
			if err != nil {
				d.path = []string{"services", name, "env_file"}
				d.fail(d.places[strings.Join(d.path, ".")], "cannot be read: "+err.Error())
				d.path = nil
				continue
			}
			if s.Env == nil {
				s.Env = map[string]string{}
			}
			for k, v := range vars {
				if !d.given("services." + name + ".env." + k) {
					s.Env[k] = v
				}
			}
		}
	}
	if c.Healer != nil {
		c.Healer.Root = below(src.Dir, c.Healer.Root)
	}
	if len(d.problems) > 0 {
		return nil, d.sorted()
	}
	return c, nil
}

// vars are the variables of an env file.
func (src *Source) vars(name string) (map[string]string, error) {
	data, ok := src.EnvFiles[name]
	switch err := src.missing[name]; {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("%s was not given", name)
	case len(data) > MaxBytes:
		return nil, fmt.Errorf("%s has more than %d bytes", name, MaxBytes)
	}
	vars, err := ParseEnv(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return vars, nil
}

// ReadFile reads a file of at most MaxBytes, and one byte more of a larger one.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO holds nobody up
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}

// ParseEnv reads lines NAME=value, as env files have them. Empty lines and those that
// begin with # are passed over, and "export " before a name. A value in single quotes
// is taken as it is; in double quotes \n, \t, \r, \" and \\ are what they are in C.
// Without quotes it ends before " #" and has no blanks around it. Nothing is expanded.
func ParseEnv(data []byte) (map[string]string, error) {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, fmt.Errorf("is no text")
	}
	vars := map[string]string{}
	text := strings.TrimPrefix(string(data), "\ufeff")
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		line = strings.TrimSpace(strings.TrimPrefix(line, "export "))
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t'\"") {
			return nil, fmt.Errorf("line %d is not NAME=value", n+1)
		}
		value, err := unquote(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		vars[name] = value
	}
	return vars, nil
}

func unquote(v string) (string, error) {
	if v == "" || v[0] != '"' && v[0] != '\'' {
		if strings.HasPrefix(v, "#") {
			return "", nil
		}
		if at := strings.Index(v, " #"); at >= 0 {
			v = strings.TrimSpace(v[:at])
		}
		return v, nil
	}
	quote := v[0]
	var b strings.Builder
	for i := 1; i < len(v); i++ {
		switch c := v[i]; {
		case c == quote:
			if rest := strings.TrimSpace(v[i+1:]); rest != "" && rest[0] != '#' {
				return "", fmt.Errorf("has something after the closing quote")
			}
			return b.String(), nil
		case c == '\\' && quote == '"' && i+1 < len(v):
			i++
			switch v[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			case '"', '\\', '$':
				b.WriteByte(v[i])
			default:
				b.WriteByte('\\')
				b.WriteByte(v[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", fmt.Errorf("has no closing quote; a value of several lines is written with \\n")
}
