package guard

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/scene"
)

// joined needs a secret of which something is left without quotes.
const joined = "parts of a string in code"

// encodings are those of the package comment: each hides a secret in a text.
var encodings = map[string]func(string) string{
	"as it is": func(s string) string { return s },
	"reversed": func(s string) string {
		b := []byte(s)
		slices.Reverse(b)
		return string(b)
	},
	"base64, first alignment":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64, second alignment": func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s + "yz")) },
	"base64, third alignment":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:12:" + s + "y")) },
	"base64 of URLs":           func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("ab" + s)) },
	"base64 in lines":          func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), 5, "\n") },
	"base64 in a form":         func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	"hex":                      func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hex in capitals":          func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"percent":                  func(s string) string { return url.PathEscape(s) },
	"a form":                   url.QueryEscape,
	"percent, each byte":       func(s string) string { return each(s, "%%%02X") },
	"percent, small, twice":    func(s string) string { return each(s, "%%25%02x") },
	"JSON":                     quoteJSON,
	"JSON, each character":     func(s string) string { return eachRune(s, `\u%04x`) },
	"JSON in JSON":             func(s string) string { return quoteJSON(quoteJSON(s)) },
	"Go, C":                    strconv.Quote,
	"C, each byte":             func(s string) string { return each(s, `\x%02x`) },
	"C, octal":                 func(s string) string { return each(s, `\%03o`) },
	"a shell":                  func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
	"HTML":                     html.EscapeString,
	"HTML, each character":     func(s string) string { return eachRune(s, "&#%d;") },
	"a letter a line":          func(s string) string { return wrap(s, 1, "\n") },
	"lines of three, indented": func(s string) string { return wrap(s, 3, "\r\n\t ") },
	"JSON of lines":            func(s string) string { return quoteJSON(wrap(s, 4, "\n")) },
	"colours between":          func(s string) string { return wrap(s, 2, "\x1b[1;31m") },
	"capitals":                 upper,
	joined:                     func(s string) string { return `"` + wrap(s, 3, `" + "`) + `"` },
}

func each(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func eachRune(s, format string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func upper(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' {
			c += 'A' - 'a'
		}
		return c
	}, s)
}

func wrap(s string, n int, sep string) string {
	var b strings.Builder
	for i := 0; i < len(s); i += n {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(s[i:min(len(s), i+n)])
	}
	return b.String()
}

func TestNoEncodingHidesASecret(t *testing.T) {
	secrets := []string{"hunter2", "tr0ub4dor&3", "pa ss\"wo'rd\\n", "a+b/c==d_e-f", "correct horse battery", "line one\nline two", "grüße-мир", "\\\\\\\\\\\\'", "''''''''", "100%%25ab"}
	for name, encode := range encodings {
		t.Run(name, func(t *testing.T) {
			for _, secret := range secrets {
				r := NewRedactor()
				r.AddSecret("DB_PASSWORD", secret)
				if name == joined && len(strip(secret)) < minSecret {
					continue // quotes of whose?
				}
				hidden := encode(secret)
				text := "before <" + hidden + "> after"
				got := r.Text(text)
				if strings.Contains(got, hidden) || !strings.Contains(got, "[secret DB_PASSWORD]") {
					t.Errorf("%q as %q became %q", secret, text, got)
				}
				if !strings.HasPrefix(got, "before <") || !strings.HasSuffix(got, "> after") {
					t.Errorf("more than the secret is gone: %q became %q", text, got)
				}
				for _, size := range []int{1, 2, 3, 7, 1000} {
					if got := stream(t, r, text, size); strings.Contains(got, hidden) || !strings.Contains(got, "[secret DB_PASSWORD]") {
						t.Errorf("%q in writes of %d bytes became %q", text, size, got)
					}
				}
			}
		})
	}
}

func stream(t testing.TB, r *Redactor, text string, size int) string {
	t.Helper()
	var b bytes.Buffer
	w := r.Writer(&b)
	for i := 0; i < len(text); i += size {
		scene.Value(w.Write([]byte(text[i:min(len(text), i+size)])))(t)
	}
	scene.Must(t, w.Close())
	return b.String()
}

func TestWhatLooksLikeAKeyIsHidden(t *testing.T) {
	r := NewRedactor()
	for _, key := range []string{
		"sk-ant-api03-abcdefghijklmnop_QRSTUV-wxyz", "sk-proj-0123456789abcdefghij", "AKIAIOSFODNN7EXAMPLE",
		"ghp_abcdefghijklmnopqrstuvwxyz0123456789", "github_pat_11ABCDEFG0abcdefghijkl_mnop", "glpat-abcdefghij0123456789",
		"xoxb-123456789012-abcdefghij", "npm_abcdefghijklmnopqrstuvwxyz0123456789", "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
		"hf_abcdefghijklmnopqrstuvwx", "vk_abcdefghijklmnopqrst", "sk_live_abcdefghijklmnop1234",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
	} {
		got := r.Text("key = " + key + " .")
		if strings.Contains(got, key) || !strings.HasPrefix(got, "key = [secret ") || !strings.HasSuffix(got, "] .") {
			t.Errorf("%s became %q", key, got)
		}
	}
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabcdef\n-----END RSA PRIVATE KEY-----"
	for text, want := range map[string]string{
		"postgres://app:s3cr%40t@db:5432/x":            "postgres://app:[secret password]@db:5432/x",
		"Authorization: Bearer abcdef0123456789abcdef": "Authorization: Bearer [secret token]",
		"a\n" + pem + "\nb":                            "a\n[secret private key]\nb",
		"a -----BEGIN PRIVATE KEY-----\nMIIE":          "a [secret private key]",
		"-----BEGIN CERTIFICATE-----\nMIIE\n":          "-----BEGIN CERTIFICATE-----\nMIIE\n",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
		for _, size := range []int{1, 5, 64} {
			if got := stream(t, r, text, size); got != want {
				t.Errorf("%q in writes of %d bytes became %q; want %q", text, size, got, want)
			}
		}
	}
}

func TestSecretsOfAnEnvironmentAndOfAFile(t *testing.T) {
	r := NewRedactor()
	r.AddEnv(map[string]string{
		"API_KEY": "key-of-the-environment", "PATH": "/usr/local/bin:/usr/bin", "PWD": "/home/somebody", "MONKEY_NAME": "orang-utan",
		"DATABASE_URL": "mysql://root:inner-password@host/db", "NODE_ENV": "development", "GIT_AUTHOR_NAME": "Ada Lovelace", "X_TOKEN": "12345",
	})
	file := filepath.Join(t.TempDir(), ".env.local")
	scene.Must(t, os.WriteFile(file, []byte("\ufeff# OLD_KEY=commented-value\nexport A='single quoted' # why\nB=\"with \\\"quotes\\\"\\nand lines\"\nISSUER=notes-app # comment\nC=\"first line\nsecond line of it\"\nNODE_ENV=production\nEMPTY=\nyaml: colon-value\nSHORT=abc\n"), 0o600))
	scene.Must(t, r.AddFile(file))
	scene.Must(t, r.AddFile(file+".missing"))
	for _, secret := range []string{"key-of-the-environment", "inner-password", "commented-value", "single quoted", "with \"quotes\"\nand lines", "notes-app", "first line\nsecond line of it", "colon-value"} {
		if got := r.Text("<" + secret + ">"); strings.Contains(got, secret) || !strings.Contains(got, "[secret ") {
			t.Errorf("%q became %q", secret, got)
		}
	}
	for _, plain := range []string{"/usr/local/bin:/usr/bin", "/home/somebody", "orang-utan", "development", "production", "Ada Lovelace", "12345", "comment", "abc"} {
		if got := r.Text(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

func TestNamesOfSecretsTellNothing(t *testing.T) {
	r := NewRedactor()
	for _, s := range [][2]string{{"A", "secret"}, {"hunter2", "hunter2"}, {"B", "[hidden 2]"}, {"C\n[D]", "other-value"}, {"E", "xsecrety"}} {
		r.AddSecret(s[0], s[1])
	}
	text := "secret hunter2 [hidden 2] other-value xsecxsecretyrety"
	got := r.Text(text)
	for _, s := range []string{"secret", "hunter2", "[hidden 2]", "other-value", "\n"} {
		if strings.Contains(got, s) {
			t.Errorf("%q is in %q", s, got)
		}
	}
}

func TestTwoSecretsThatOverlapAreBothHidden(t *testing.T) {
	r := NewRedactor()
	r.AddSecret("A", "abcdefgh")
	r.AddSecret("B", "efghijkl")
	r.AddSecret("C", "abcdefgh-and-more")
	for text, want := range map[string]string{
		"<abcdefghijkl>":      "<[secret A]>",
		"<abcdefgh-and-more>": "<[secret C]>",
		"<abcdefgh-and-mor>":  "<[secret A]-and-mor>",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
		if got := stream(t, r, text, 1); got != want {
			t.Errorf("%q byte by byte became %q; want %q", text, got, want)
		}
	}
}

// A stream of any length is passed on while it runs, with bounded memory.
func TestAStreamIsPassedOn(t *testing.T) {
	r := NewRedactor()
	r.AddSecret("A", "hunter2-hunter2")
	var b bytes.Buffer
	w := r.Writer(&b)
	line := strings.Repeat("hunter2 x", 10) + "\n"
	var n int
	for range 2000 {
		n += scene.Value(w.Write([]byte(line)))(t)
	}
	if b.Len() < n-2*maxHeldLine {
		t.Errorf("%d of %d bytes are held back", n-b.Len(), n)
	}
	long := strings.Repeat("no line ends here, ", 1<<17)
	scene.Value(w.Write([]byte(long)))(t)
	n += len(long)
	if b.Len() < n-2*maxHeldLine {
		t.Errorf("%d of %d bytes are held back", n-b.Len(), n)
	}
	spaces := "h" + strings.Repeat(" ", 3<<20)
	scene.Value(w.Write([]byte(spaces)))(t)
	n += len(spaces)
	if held := n - b.Len(); held > 2*maxHeld {
		t.Errorf("%d bytes are held back", held)
	}
	scene.Must(t, w.Close())
	if want := strings.Repeat(line, 2000) + long + spaces; b.String() != want {
		t.Errorf("a text without secrets was changed: %d bytes, want %d", b.Len(), len(want))
	}
}

// A text that can be read in very many ways holds nobody up, and hides nothing.
func TestATextOfBackslashesEnds(t *testing.T) {
	r := NewRedactor()
	r.AddSecret("A", strings.Repeat(`\`, 60)+"a b")
	r.AddSecret("B", "hunter2")
	for _, text := range []string{strings.Repeat(`\`, 3_000), strings.Repeat(`\n`, 3_000), strings.Repeat("h%25252525", 1_000), strings.Repeat(`\ "`, 1_000)} {
		if got := r.Text(text + "hunter2"); strings.Contains(got, "hunter2") {
			t.Errorf("hunter2 is in %.100q", got)
		}
	}
}

// FuzzRedactor: no secret of six bytes or more gets through in an encoding that the
// package comment names, whole or in parts; a text without it is not changed.
func FuzzRedactor(f *testing.F) {
	f.Add("hunter2", "before ", " after", uint8(0), uint8(3))
	f.Add("pa ss\"wo'rd\\n", "{\"a\":", "}", uint8(14), uint8(1))
	f.Add("''''''\\", "'", "\\", uint8(20), uint8(2))
	f.Add("0000 \"", "0", "0", uint8(14), uint8(0))
	f.Add("00000\b", "0", "0", uint8(7), uint8(2))
	f.Add("000 00", "0", "0", uint8(8), uint8(0))
	f.Add("[secret", "[secret [", "]", uint8(1), uint8(9))
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range encodings {
			if !yield(name) {
				return
			}
		}
	})
	f.Fuzz(func(t *testing.T, secret, before, after string, which, size uint8) {
		if len(secret) > 100 || len(before)+len(after) > 300 {
			return
		}
		r := NewRedactor()
		r.AddSecret("S", secret)
		secret = strings.TrimSpace(secret)
		if len(secret) < minSecret {
			return
		}
		encode := encodings[names[int(which)%len(names)]]
		// An encoding of characters says nothing of bytes that are none.
		if !validUTF8(secret) || names[int(which)%len(names)] == joined && len(strip(secret)) < minSecret {
			encode = encodings["as it is"]
		}
		hidden := encode(secret)
		text := before + hidden + after
		outs := []string{r.Text(text), stream(t, r, text, int(size)+1)}
		for _, out := range outs {
			if strings.Contains(out, secret) && !strings.Contains(before, secret) && !strings.Contains(after, secret) && !strings.Contains("[secret S]", secret) && !strings.Contains("[***]", secret) || strings.Contains(out, hidden) {
				t.Fatalf("%q as %q in %q became %q", secret, hidden, text, out)
			}
		}
		if out := r.Text(outs[0]); out != outs[0] {
			t.Fatalf("%q becomes %q when it is redacted again", outs[0], out)
		}
		plain := NewRedactor()
		if got := stream(t, plain, text, int(size)+1); got != text && len(likely(text)) == 0 {
			t.Fatalf("%q became %q, without a secret", text, got)
		}
	})
}

func validUTF8(s string) bool { return strings.ToValidUTF8(s, "") == s }
