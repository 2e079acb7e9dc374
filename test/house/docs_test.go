package house_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

var (
	docLink = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	docCode = regexp.MustCompile("`([^`\n]+)`")
	docPath = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	docTest = regexp.MustCompile(`^(…|Test)([A-Z][A-Za-z0-9]*)?`)
	docMake = regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)(?: ([A-Z]+)=)?`)
	docName = regexp.MustCompile("\\b(?:Test|Fuzz)[A-Z][A-Za-z0-9]*…?|`…[A-Z][a-z][A-Za-z0-9]*…?|\\bdrivertest: \\*|\\bscenarios? `")
	anyTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
)

// TestDocumentsNameWhatExists finds links, paths, tests and make targets that
// documents name and nobody has.
func TestDocumentsNameWhatExists(t *testing.T) {
	docs, tests, names := documents(t)
	makefile := proctest.Value(os.ReadFile("Makefile"))(t)
	for doc, text := range docs {
		exists := func(path string) bool {
			for _, base := range []string{".", filepath.Dir(doc)} {
				if _, err := os.Stat(filepath.Join(base, path)); err == nil {
					return true
				}
			}
			return false
		}
		for _, m := range docLink.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
		}
		for _, m := range docCode.FindAllStringSubmatch(text, -1) {
			code := m[1]
			first, _, nested := strings.Cut(code, "/")
			switch {
			case !docPath.MatchString(code):
			case nested && exists(first) && !exists(code):
				t.Errorf("%s names the path %s, which is not there", doc, code)
			case !nested && slices.Contains([]string{".go", ".md", ".txtar"}, filepath.Ext(code)) && !names[code]:
				t.Errorf("%s names the file %s, which is nowhere", doc, code)
			}
			if m := docTest.FindStringSubmatch(code); m != nil && m[2] != "" {
				known := func(test string) bool { return strings.Contains(test, m[2]) }
				if !slices.ContainsFunc(tests, known) {
					t.Errorf("%s names the test %s, which is nowhere", doc, code)
				}
			}
		}
		for _, m := range docMake.FindAllStringSubmatch(commands(text), -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s says make %s, which the Makefile does not have", doc, m[1])
			}
			if m[2] != "" && !strings.Contains(string(makefile), "$("+m[2]+")") {
				t.Errorf("%s says make %s %s=…, which the Makefile does not read", doc, m[1], m[2])
			}
		}
	}
}

// TestUsersDocumentsNameNoTests: what proves a promise is for developers, and is in
// docs/proofs.md and SECURITY.md. The other documents of users say what holds.
func TestUsersDocumentsNameNoTests(t *testing.T) {
	docs, tests, _ := documents(t)
	for doc, text := range docs {
		if doc != "README.md" && !within(doc, "docs") || doc == "docs/proofs.md" || within(doc, "docs/decisions") {
			continue
		}
		for _, name := range docName.FindAllString(text, -1) {
			t.Errorf("%s names the test %s, which belongs in docs/proofs.md", doc, name)
		}
	}
	named := docName.FindAllString(docs["docs/proofs.md"], -1)
	for _, name := range named {
		if (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz")) && !slices.Contains(tests, name) {
			t.Errorf("docs/proofs.md names the test %s, which is nowhere", name)
		}
	}
	if len(named) < 200 {
		t.Errorf("docs/proofs.md names only %d tests", len(named))
	}
}

// TestGoInDocumentsCompiles: the Go of the README and of the package's comment is
// that of the package.
func TestGoInDocumentsCompiles(t *testing.T) {
	readme := proctest.Value(os.ReadFile("README.md"))(t)
	doc := proctest.Value(os.ReadFile("sdk/go/doc.go"))(t)
	_, fenced, _ := strings.Cut(string(readme), "```go\n")
	fenced, _, _ = strings.Cut(fenced, "```")
	var comment string
	for line := range strings.Lines(string(doc)) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok && !strings.HasPrefix(code, " ") || ok && comment != "" {
			comment += code
		} else if comment != "" {
			break
		}
	}
	program := fmt.Sprintf(`package main
import ("context"; "os"; "github.com/tend-run/tend/sdk/go")
func readme(ctx context.Context) error { %s; _ = r; return err }
func doc(ctx context.Context) error { %s; _ = res; return err }
func main() { _, _ = readme(context.Background()), doc(context.Background()) }`, fenced, comment)
	file := filepath.Join(t.TempDir(), "main.go")
	proctest.Must(t, os.WriteFile(file, []byte(program), 0o600))
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%s\n%s", out, program)
	}
}

// TestArchitectureNamesEachPackage: the table of packages is the map of the
// module.
func TestArchitectureNamesEachPackage(t *testing.T) {
	text := proctest.Value(os.ReadFile("ARCHITECTURE.md"))(t)
	for _, path := range slices.Sorted(maps.Keys(list(t, "./..."))) {
		if within(path, "gen", "internal/gen", "test/conformance") {
			continue // generated; suites of their own
		}
		// Below internal a name in its folder is enough.
		names := []string{path}
		if inner, ok := strings.CutPrefix(path, "internal/"); ok {
			_, name, _ := strings.Cut(inner, "/")
			names = append(names, inner, name)
		}
		if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(string(text), "`"+name+"`") }) {
			t.Errorf("ARCHITECTURE.md does not say what package %s is", path)
		}
	}
}

// TestTheREADMENamesThePinnedClients: the versions it says are tried are those
// that the suites install.
func TestTheREADMENamesThePinnedClients(t *testing.T) {
	readme := proctest.Value(os.ReadFile("README.md"))(t)
	pin := func(file, pattern string) string {
		b := proctest.Value(os.ReadFile(file))(t)
		m := regexp.MustCompile(pattern).FindSubmatch(b)
		if m == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		return string(m[1])
	}
	for _, name := range []string{"e2b", "langsmith"} {
		npm := pin("test/conformance/"+name+"/js/package.json", `"`+name+`": "([0-9.]+)"`)
		pypi := pin("test/conformance/"+name+"/python/requirements.txt", `(?m)^`+name+`==([0-9.]+)$`)
		if want := fmt.Sprintf("npm `%s` %s and PyPI `%s` %s", name, npm, name, pypi); !strings.Contains(string(readme), want) {
			t.Errorf("README.md does not say that %s are tried", want)
		}
	}
}

// TestTheDevContainerBuildsThisModule: its Go is the one that go.mod asks for, and
// what it runs first is a target of make. On Debian, and as root, make test
// installs the rest.
func TestTheDevContainerBuildsThisModule(t *testing.T) {
	read := func(path string) []byte {
		b := proctest.Value(os.ReadFile(path))(t)
		return b
	}
	var c struct{ Image, RemoteUser, PostCreateCommand string }
	proctest.Must(t, json.Unmarshal(read(".devcontainer/devcontainer.json"), &c))
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(read("go.mod"))
	if version == nil || !strings.Contains(c.Image, "/golang:"+string(version[1])+"-") || c.RemoteUser != "root" {
		t.Errorf("the container is %+v, and go.mod wants Go %s", c, version)
	}
	target, ok := strings.CutPrefix(c.PostCreateCommand, "make ")
	if !ok || !strings.Contains(string(read("Makefile")), "\n"+target+":") {
		t.Errorf("%q is no target of the Makefile", c.PostCreateCommand)
	}
}

// TestTroubleshootingQuotesErrorsThatExist: what "it says" in docs/troubleshooting.md is a text of the
// program, but for what stands for names and numbers.
func TestTroubleshootingQuotesErrorsThatExist(t *testing.T) {
	docs, _, _ := documents(t)
	var source strings.Builder
	out := proctest.Value(exec.CommandContext(t.Context(), "git", "ls-files", "*.go", ":!*_test.go").Output())(t)
	for path := range strings.Lines(string(out)) {
		text, _ := os.ReadFile(strings.TrimSpace(path)) // one that was removed has none
		source.Write(text)
	}
	quoted := 0
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`[^|]* \\|").FindAllStringSubmatch(docs["docs/troubleshooting.md"], -1) {
		if strings.HasPrefix(m[1], "tend ") && !strings.HasPrefix(m[1], "tend needs") || strings.HasPrefix(m[1], "CERTIFICATE") {
			continue // a command, or what others say
		}
		quoted++
		for part := range strings.SplitSeq(strings.ReplaceAll(m[1], `"`, "…"), "…") {
			if part = strings.TrimSpace(part); !strings.Contains(source.String(), part) {
				t.Errorf("docs/troubleshooting.md quotes %q, and no program says %q", m[1], part)
			}
		}
	}
	if quoted < 15 {
		t.Errorf("docs/troubleshooting.md quotes %d errors", quoted)
	}
}

// documents returns the text of all documents, the names of all tests, and the
// names of all files.
func documents(t *testing.T) (docs map[string]string, tests []string, names map[string]bool) {
	t.Helper()
	docs, names = map[string]string{}, map[string]bool{}
	out := proctest.Value(exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard").Output())(t)
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSuffix(path, "\n")
		names[filepath.Base(path)] = true
		if ext := filepath.Ext(path); ext != ".md" && !strings.HasSuffix(path, "_test.go") {
			continue
		}
		if strings.HasPrefix(path, "test/conformance/healer/scenarios/") {
			continue // a corpus from elsewhere, kept as it is: it names what is beside it there
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(path) == ".md" {
			docs[path] = string(text)
			continue
		}
		for _, m := range anyTest.FindAllStringSubmatch(string(text), -1) {
			tests = append(tests, m[1])
		}
	}
	if len(docs) < 5 || len(tests) < 100 {
		t.Fatalf("found %d documents and %d tests", len(docs), len(tests))
	}
	return docs, tests, names
}

// commands returns what a document shows as code.
func commands(text string) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			b.WriteString(line)
		default:
			for _, m := range docCode.FindAllStringSubmatch(line, -1) {
				b.WriteString(m[1] + "\n")
			}
		}
	}
	return b.String()
}

// TestSecurityNamesTheTestOfEachPromise: a promise of SECURITY.md without a test
// that tries to break it is none.
func TestSecurityNamesTheTestOfEachPromise(t *testing.T) {
	docs, tests, _ := documents(t)
	rows := 0
	for line := range strings.Lines(docs["SECURITY.md"]) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| threat |") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		named := docCode.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(cells) != 3 || len(named) == 0 {
			t.Errorf("SECURITY.md names no test in: %s", line)
		}
		for _, m := range named {
			if !slices.Contains(tests, m[1]) {
				t.Errorf("SECURITY.md names the test %s, which is nowhere", m[1])
			}
		}
	}
	for _, name := range tests {
		if strings.HasPrefix(name, "Fuzz") && !strings.Contains(docs["SECURITY.md"], "`"+name+"`") {
			t.Errorf("SECURITY.md does not say what %s holds", name)
		}
	}
	if rows < 30 {
		t.Errorf("SECURITY.md has only %d promises", rows)
	}
}
