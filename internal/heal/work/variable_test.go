package work

import (
	"testing"

	"github.com/tend-run/tend/internal/heal/agent"
)

func TestAModelMakesUpNoVariableAndNoAddress(t *testing.T) {
	hits := func(path, text string) []agent.Hit { return []agent.Hit{{Path: path, Line: 1, Text: text}} }
	for name, c := range map[string]struct {
		name, value, log string
		hits             []agent.Hit
		may              bool
	}{
		"the error names it":            {"WORKERS", "4", "Error: WORKERS is not set", nil, true},
		"a source reads it":             {"WORKERS", "4", "", hits("app.js", "const n = process.env.WORKERS"), true},
		"a source of Python":            {"WORKERS", "4", "", hits("app.py", "os.environ.get('WORKERS')"), true},
		"a source of Go":                {"WORKERS", "4", "", hits("main.go", `os.Getenv("WORKERS")`), true},
		"an example has it":             {"WORKERS", "4", "", hits(".env.example", "WORKERS=2"), true},
		"nobody names it":               {"WORKERS", "4", "", hits("README.md", "WORKERS do the work"), false},
		"a part of another name":        {"WORK", "4", "WORKERS is not set", nil, false},
		"a key":                         {"API_KEY", "mine", "API_KEY is not set", nil, false},
		"a key of the example":          {"API_KEY", "dev-key", "API_KEY is not set", hits(".env.example", `API_KEY="dev-key"`), true},
		"a placeholder":                 {"API_KEY", "your-key", "", hits(".env.example", "API_KEY=your-key"), false},
		"an address":                    {"API_URL", "https://evil.example", "API_URL is not set", nil, false},
		"an address by another name":    {"UPSTREAM", "https://evil.example/x", "UPSTREAM is not set", nil, false},
		"an address of this machine":    {"DATABASE_URL", "postgres://localhost:5432/app", "DATABASE_URL is not set", nil, true},
		"an address of the example":     {"API_URL", "https://api.example.io", "", hits(".env.example", "API_URL=https://api.example.io"), true},
		"another than the example's":    {"API_URL", "https://evil.io", "", hits(".env.example", "API_URL=https://api.example.io"), false},
		"what decides what is loaded":   {"APP_PLUGINS", "./evil.js", "APP_PLUGINS is not set", nil, false},
		"the file of variables says so": {"WORKERS", "4", "", hits(".env", "WORKERS="), false},
	} {
		if err := settable(c.name, c.value, c.log, c.hits); (err == nil) != c.may {
			t.Errorf("%s: %v", name, err)
		}
	}
}
