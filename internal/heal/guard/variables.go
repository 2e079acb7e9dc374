package guard

import (
	"fmt"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// A file of variables is read more loosely here than where its values are used
// (internal/service/config): what one reader takes for a value must be hidden from the model,
// also if another takes it for a mistake.

var (
	variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	assignment   = lazyregexp.New(`^\s*(?:#\s*)*(?:export\s+|set\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*(=|:\s)(.*)$`)
)

// variable is an assignment in a file.
type variable struct {
	name    string
	value   string // as written, with its quotes
	comment bool
	line    int // of its first line
	lines   int
}

// variables returns the assignments of a file, those in comments too, and how many lines
// it has.
func variables(lines []string) (found []variable) {
	for i := 0; i < len(lines); i++ {
		m := assignment.FindStringSubmatch(strings.TrimPrefix(strings.TrimSuffix(lines[i], "\r"), "\ufeff"))
		if m == nil {
			continue
		}
		v := variable{name: m[1], value: strings.TrimSpace(m[3]), line: i, lines: 1}
		v.comment = strings.HasPrefix(strings.TrimSpace(lines[i]), "#")
		// A quote that is not closed goes on in the next lines, if it is closed there.
		if q := v.value; q != "" && strings.IndexByte("\"'`", q[0]) >= 0 && !v.comment && !closed(q) {
			for n := i + 1; n < len(lines); n++ {
				q += "\n" + strings.TrimSuffix(lines[n], "\r")
				if closed(q) {
					v.value, v.lines = q, n-i+1
					i = n
					break
				}
			}
		}
		found = append(found, v)
	}
	return found
}

// closed reports whether a text ends the quote that it begins with.
func closed(q string) bool {
	for i := 1; i < len(q); i++ {
		if q[i] == '\\' && q[0] != '\'' {
			i++
		} else if q[i] == q[0] {
			return true
		}
	}
	return false
}

// readings are the values that readers may take from what is written: with and without
// quotes, escapes and a comment behind it.
func (v variable) readings() []string {
	raw := v.value
	out := []string{raw}
	plain := raw
	if at := strings.Index(plain, " #"); at >= 0 {
		plain = strings.TrimSpace(plain[:at])
		out = append(out, plain)
	}
	if raw == "" || strings.IndexByte("\"'`", raw[0]) < 0 {
		return out
	}
	inner := raw[1:]
	for i := 1; i < len(raw); i++ {
		if raw[i] == '\\' && raw[0] != '\'' {
			i++
		} else if raw[i] == raw[0] {
			inner = raw[1:i]
			break
		}
	}
	return append(out, inner, strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\"`, `"`, `\\`, `\`, `\$`, "$").Replace(inner))
}

// namesOnly is what a reader sees of a file of variables. What is not understood is left
// out, since it may be a value.
func namesOnly(text string) string {
	lines := strings.Split(text, "\n")
	var b strings.Builder
	next := 0
	skip := func(to int) {
		for ; next < to; next++ {
			if line := strings.TrimSpace(lines[next]); line != "" {
				b.WriteString("[line hidden]")
			}
			if next < len(lines)-1 {
				b.WriteByte('\n')
			}
		}
	}
	for _, v := range variables(lines) {
		skip(v.line)
		if v.comment {
			b.WriteString("# ")
		}
		b.WriteString(v.name + "=")
		if v.value != "" && v.value != `""` && v.value != "''" {
			b.WriteString("[value hidden]")
		}
		if next = v.line + v.lines; next < len(lines) {
			b.WriteByte('\n')
		}
	}
	skip(len(lines))
	return b.String()
}

// WithVariable gives a variable a value in the text of a file, as [Guard.SetEnv] does.
func WithVariable(text, name, value string) (string, error) { return setVariable(text, name, value) }

// setVariable gives a variable a value in the text of a file, if it has none.
func setVariable(text, name, value string) (string, error) {
	if strings.ContainsAny(value, "\x00") || len(value) > 32<<10 {
		return "", fmt.Errorf("a value has at most 32 KiB and no NUL")
	}
	lines := strings.Split(text, "\n")
	line := name + "=" + quoted(value)
	for _, v := range variables(lines) {
		if v.name != name || v.comment {
			continue
		}
		if v.value != "" && v.value != `""` && v.value != "''" {
			return "", fmt.Errorf("%s has a value already, which may be the user's secret", name)
		}
		if strings.HasPrefix(strings.TrimSpace(lines[v.line]), "export ") {
			line = "export " + line
		}
		lines[v.line] = line
		return strings.Join(lines, "\n"), nil
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + line + "\n", nil
}

// quoted writes a value so that internal/service/config, dotenv and shells read it.
func quoted(value string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-./:@%+,=", c)
	}
	switch {
	case strings.IndexFunc(value, func(c rune) bool { return !plain(c) }) < 0:
		return value
	case !strings.ContainsAny(value, "'\n\r"):
		return "'" + value + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "$", `\$`).Replace(value) + `"`
}

// steering are those of loaders and shells, of git, of interpreters and virtual machines, of
// compilers and package managers, and those by which a program trusts another host.
var steering = lazyregexp.New(`^(?i:` + strings.Join([]string{
	`LD_.*|DYLD_.*|PATH|BASH_.*|ENV|IFS|PS4|SHELL|SHELLOPTS|PROMPT_COMMAND|HOME|GCONV_PATH|TEND_.*`,
	`GIT_.*|EDITOR|VISUAL|PAGER|MANPAGER|LESSOPEN|LESSCLOSE|BROWSER|SSH_ASKPASS|SUDO_ASKPASS`,
	`NODE_OPTIONS|NODE_PATH|NODE_REPL_EXTERNAL_MODULE|BUN_OPTIONS|TS_NODE_.*|PYTHON.*|PERL5?.*|RUBY.*`,
	`PHPRC|PHP_INI_SCAN_DIR|LUA_INIT.*|DOTNET_.*HOOKS`,
	`JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|JAVA_OPTS|MAVEN_OPTS|GRADLE_OPTS|ERL_.*FLAGS|ELIXIR_ERL_OPTIONS`,
	`GOFLAGS|GOENV|GOTOOLCHAIN|GOPROXY|CC|CXX|MAKEFLAGS|RUSTC.*|CARGO_.*|npm_.*|YARN_.*|PNPM_.*|PIP_.*|UV_.*|POETRY_.*|BUNDLE_.*|GEM_.*`,
	`OPENSSL_.*|SSL_CERT_.*|SSLKEYLOGFILE|NODE_EXTRA_CA_CERTS|NODE_TLS_REJECT_UNAUTHORIZED|(HTTP|HTTPS|ALL)_PROXY`,
}, "|") + `)$`)

// Steers reports whether a variable changes which programs run, or makes a loader, an
// interpreter, a shell or git load code, or has programs trust another host. No repair needs such a variable, but a hostile
// model or example would set it.
func Steers(variable string) bool { return steering.MatchString(variable) }
