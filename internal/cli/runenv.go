package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tend-run/tend/process"
)

// tokenVariable lets a caller in, and is for no process.
const tokenVariable = "TEND_TOKEN"

// envFlags say which variables a process gets.
type envFlags struct {
	Env     []string `short:"e" placeholder:"K=V" help:"Environment variable; K alone takes its value from this shell, if it has one. Repeatable."`
	EnvFile []string `name:"env-file" placeholder:"FILE" help:"Lines of K=V, or K alone; # begins a comment. Repeatable. --env overrides it."`
	EnvAll  bool     `name:"env-all" help:"Pass all variables of this shell except TEND_TOKEN, also to another user, daemon or sandbox; tend inspect shows them. --env-file and --env override them."`
}

// environment returns the variables that were asked for, nil for none. What is
// nearest to the process comes last.
func (c *envFlags) environment(inv *invocation) (env map[string]string, err error) {
	set := func(e string) {
		k, v, ok := strings.Cut(e, "=")
		if !ok {
			if v, ok = lookup(inv.environ(), k); !ok {
				return // as docker run and ssh do: unset is not empty
			}
		}
		if env == nil {
			env = make(map[string]string)
		}
		env[k] = v
	}
	if c.EnvAll {
		for _, e := range inv.environ() {
			if k, _, ok := strings.Cut(e, "="); ok && k != "" && k != tokenVariable {
				set(e)
			}
		}
	}
	for _, name := range c.EnvFile {
		lines, err := readEnvFile(name)
		if err != nil {
			return nil, err
		}
		for _, e := range lines {
			set(e)
		}
	}
	for _, e := range c.Env {
		set(e)
	}
	return env, nil
}

// lookup is os.LookupEnv of an environment.
func lookup(environ []string, name string) (value string, ok bool) {
	for _, e := range environ {
		if k, v, _ := strings.Cut(e, "="); k == name {
			return v, true
		}
	}
	return "", false
}

// readEnvFile reads a file as docker run --env-file does: values are taken as
// they stand, quotes included.
func readEnvFile(name string) (lines []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--env-file: %w", err)
	}
	defer f.Close()
	in := bufio.NewScanner(io.LimitReader(f, process.MaxSpecBytes+1))
	in.Buffer(nil, process.MaxSpecBytes+1)
	for n, size := 1, 0; in.Scan(); n++ {
		line := strings.TrimSuffix(in.Text(), "\r")
		if size += len(line) + 1; size > process.MaxSpecBytes {
			return nil, usageError(fmt.Sprintf("--env-file %s is too long; %d bytes are allowed", name, process.MaxSpecBytes))
		}
		line = strings.TrimLeft(line, " \t")
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if k, _, _ := strings.Cut(line, "="); k == "" || strings.ContainsAny(k, " \t\x00") || strings.ContainsRune(line, 0) {
			return nil, usageError(fmt.Sprintf("--env-file %s, line %d: write K=V, or K alone", name, n))
		}
		lines = append(lines, line)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("--env-file %s: %w", name, err)
	}
	return lines, nil
}

// likeHere lets a process on this machine find what the person's shell finds: it starts in
// the current directory, with the variables of the caller where the daemon is the same user's.
// No answer shows them. Another user gets the caller's PATH alone, or not even that.
func (c *runFlags) likeHere(inv *invocation, d *daemon, s *process.Spec) {
	if s.Dir == "" {
		if wd, err := os.Getwd(); err == nil {
			s.Dir = wd
		}
	}
	if c.User != "" { // another user has another PATH; sudo(8) does the same
		return
	}
	if c.CleanEnv || !ours(strings.TrimPrefix(d.url, "unix://")) {
		if path := inv.getenv("PATH"); path != "" {
			s.Env = withDefault(s.Env, "PATH", path)
		}
		return
	}
	for _, e := range inv.environ() {
		k, v, _ := strings.Cut(e, "=")
		if _, given := s.Env[k]; given || k == "" || k == tokenVariable || !utf8.ValidString(k) {
			continue
		}
		s.Env = withDefault(s.Env, k, v)
		s.HiddenEnv = append(s.HiddenEnv, k)
	}
	slices.Sort(s.HiddenEnv)
}

func withDefault(env map[string]string, k, v string) map[string]string {
	if _, ok := env[k]; ok {
		return env
	}
	if env == nil {
		env = make(map[string]string)
	}
	env[k] = v
	return env
}
