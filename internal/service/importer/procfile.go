package importer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/service/config"
)

var procfileLine = lazyregexp.New(`^([A-Za-z0-9_-]+):\s*(.+)$`)

// firstPort is what foreman gives the first program as PORT; each further one gets 100
// more.
const firstPort = 5000

// Procfile reads lines NAME: COMMAND. With dotenv there is a file .env beside it.
func Procfile(name string, data []byte, dotenv bool) (*File, error) {
	if len(data) > config.MaxBytes || !utf8.Valid(data) || strings.ContainsRune(string(data), 0) {
		return nil, problem(name, nil, "is no text of at most %d bytes", config.MaxBytes)
	}
	f := &File{From: "Procfile"}
	var wrong config.Problems
	for i, line := range strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n") {
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' {
			continue
		}
		m := procfileLine.FindStringSubmatch(text)
		if m == nil {
			wrong = append(wrong, &config.Problem{File: name, Line: i + 1, Column: 1, Text: "is not NAME: COMMAND",
				Source: strings.TrimRight(line, "\r")})
			continue
		}
		if err := f.full(name, &config.Node{Line: i + 1, Column: 1}); err != nil {
			return nil, err
		}
		s := f.add(m[1])
		s.set("command", word(m[2]))
		if dotenv {
			s.set("env_file", ".env")
		}
		if strings.Contains(m[2], "PORT") {
			port := firstPort + 100*(len(f.services)-1)
			s.env["PORT"] = fmt.Sprint(port)
			s.note("PORT is what foreman gives it; health: {tcp: %d} asks there", port)
		}
	}
	if len(wrong) > 0 {
		return nil, wrong[:min(len(wrong), config.MaxProblems)]
	}
	return f.check(name)
}
