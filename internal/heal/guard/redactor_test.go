package guard

import (
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestNoEncodingHidesASecret(t *testing.T) {
	secrets := []string{
		"hunter2", "tr0ub4dor&3", "pa ss\"wo'rd\\n", "a+b/c==d_e-f", "correct horse battery", "line one\nline two", "grüße-мир", "\\\\\\\\\\\\'", "''''''''", "100%%25ab",
		"postgres-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c", "deadbeef cafe 00ff 0123", "12345678901234567890123",
	}
	for _, e := range encodings {
		t.Run(e.name, func(t *testing.T) {
			for _, secret := range secrets {
				if e.kind&isJoined != 0 && len(loose([]byte(secret))) < minSecret || e.kind&isASCII != 0 && printed(secret) != secret {
					continue // quotes of whose?
				}
				r := NewRedactor()
				r.AddSecret("DB_PASSWORD", secret)
				hidden := e.encode(secret)
				for _, around := range [][2]string{{"before <", "> after"}, {"before\n", "\nafter"}} {
					text := around[0] + hidden + around[1]
					got := r.Text(text)
					if strings.Contains(got, hidden) || !strings.Contains(got, "[secret DB_PASSWORD]") {
						t.Errorf("%q as %q became %q", secret, text, got)
					}
					for part := range slices.Chunk([]byte(secret), 16) {
						if e.kind&hasColumns != 0 && len(part) > 2 && strings.Contains(got, string(part)) {
							t.Errorf("%q of %q is left in %q", part, secret, got)
						}
					}
					if !strings.HasPrefix(got, around[0]) || !strings.HasSuffix(got, around[1]) && (e.kind&hasColumns == 0 || around[1] == "\nafter") {
						t.Errorf("more than the secret is gone: %q became %q", text, got)
					}
				}
			}
		})
	}
}

// TestNoTwoEncodingsHideASecret: random secrets, in each encoding in one of the others.
func TestNoTwoEncodingsHideASecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9]{3}[A-Za-z0-9 !#$%*,./:;=?@^_{|}~<>&-]{3,60}[A-Za-z0-9]{3}`).Draw(t, "secret")
		outer := rapid.SampledFrom(encodings).Draw(t, "outer")
		r := NewRedactor()
		r.AddSecret("S", secret)
		for _, inner := range encodings {
			once := inner.encode(secret)
			switch {
			case (outer.kind|inner.kind)&isTwo != 0:
			case outer.kind&breaksLines != 0 && inner.kind&hasColumns != 0, outer.kind&changesCase != 0 && inner.kind&hasCase != 0,
				outer.kind&isASCII != 0 && printed(once) != once, outer.kind&isJoined != 0 && strings.ContainsAny(once, "\"\\"):
				// Nobody could decode it.
			default:
				hidden := outer.encode(once)
				text := "before\n" + hidden + "\n-- after"
				if got := r.Text(text); strings.Contains(got, hidden) || !strings.Contains(got, "[secret S]") {
					t.Fatalf("%q as %s in %s: %q became %q", secret, inner.name, outer.name, text, got)
				}
			}
		}
	})
}

// TestASecretThatLooksLikeAnEscape: it is found behind several levels of escapes of another kind.
func TestASecretThatLooksLikeAnEscape(t *testing.T) {
	for _, secret := range []string{"000>%0000", "pass%41word&lt;1", "a=3Db%25=\\x41c", "000& %000", "a%00=3D&z<1"} {
		r := NewRedactor()
		r.AddSecret("S", secret)
		for _, hidden := range []string{secret, html.EscapeString(secret)} {
			for range 3 {
				hidden = quoteJSON(hidden)
				if got := r.Text("before " + hidden + " after"); strings.Contains(got, hidden) || !strings.Contains(got, "[secret S]") {
					t.Errorf("%q as %s became %q", secret, hidden, got)
				}
			}
		}
	}
}

// TestOrdinaryTextsStay: what holds no secret is not changed, also not in dumps of it.
func TestOrdinaryTextsStay(t *testing.T) {
	r := NewRedactor()
	for name, value := range map[string]string{"A": "hunter2", "B": "tr0ub4dor&3 and more", "C": "deadbeefcafe", "D": "''''''''", "E": "postgres-9f86d081884c7d659a2feaa0c55ad015"} {
		r.AddSecret(name, value)
	}
	source := string(proctest.Value(os.ReadFile("guard.go"))(t))[:1000]
	texts := []string{
		source, strings.Repeat("VVVVUUUU", 50), strings.Repeat("\x00\xff", 200), strings.Repeat("A", 500),
		strings.Repeat("2026-11-27T15:45:45.123Z INFO listening on 0.0.0.0:3000 pid=12345 GET /users/42?x=%20y 200 12ms\n", 3),
		strings.Repeat(`{"level":"info","msg":"request \"GET /\" done\nnext","path":"C:\\x\\y","id":"9f86d081884c","n":[1,2,3,4,5,255]}`+"\n", 3),
		strings.Repeat("\x1b[32mok\x1b[0m  127.0.0.1:5432 &amp; 10 20 30 40 50 60 70 80 90\n", 3),
	}
	for _, text := range texts {
		for _, e := range encodings {
			if out := e.encode(text); r.Text(out) != out {
				t.Errorf("%.40q as %s was changed", text, e.name)
			}
		}
	}
}

// TestATextThatWasMadeToTakeLongEnds: 4 MiB of text that can be read in as many ways as there
// are. The bound is that of the test; a search that is not linear would take days.
func TestATextThatWasMadeToTakeLongEnds(t *testing.T) {
	r := NewRedactor()
	r.AddSecret("A", strings.Repeat("a", 60_000))
	r.AddSecret("B", strings.Repeat(`\`, 60)+"a b")
	r.AddSecret("C", strings.Repeat("' ", 60)+"'")
	r.AddSecret("D", "hunter2")
	var b strings.Builder
	units := []string{"V", "a", "a ", `\`, `\n`, "h%25252525", `\u0025&amp;%5c"+"`, "' ", "56 ", "0x61, ", "00000000: 6161 6161  aaaa\n", "hunter ", to64(to64("VVVVVVVV"))}
	for _, unit := range units {
		b.WriteString("\n--\n" + strings.Repeat(unit, 64<<10/len(units)/len(unit)))
	}
	if got := r.Text(b.String() + "\n--\nhunter2 " + to64("hunter2")); strings.Contains(got, "hunter2") || strings.Contains(got, to64("hunter2")) {
		t.Error("the secret behind it is shown")
	}
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
	}
}

func TestSecretsOfAnEnvironmentAndOfAFile(t *testing.T) {
	r := NewRedactor()
	r.AddEnv(map[string]string{
		"API_KEY": "key-of-the-environment", "PATH": "/usr/local/bin:/usr/bin", "PWD": "/home/somebody", "MONKEY_NAME": "orang-utan",
		"DATABASE_URL": "mysql://root:inner-password@host/db", "NODE_ENV": "development", "GIT_AUTHOR_NAME": "Ada Lovelace", "X_TOKEN": "12345",
	})
	file := filepath.Join(t.TempDir(), ".env.local")
	proctest.Must(t, os.WriteFile(file, []byte("\ufeff# OLD_KEY=commented-value\nexport A='single quoted' # why\nB=\"with \\\"quotes\\\"\\nand lines\"\nISSUER=notes-app # comment\nC=\"first line\nsecond line of it\"\nNODE_ENV=production\nEMPTY=\nyaml: colon-value\nSHORT=abc\n"), 0o600))
	r.AddVariables(proctest.Value(ReadVariables(file))(t))
	r.AddVariables(proctest.Value(ReadVariables(file + ".missing"))(t))
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
	f.Add("hunter2", "before ", " after", uint8(0))
	f.Add("pa ss\"wo'rd\\n", "{\"a\":", "}", uint8(14))
	f.Add("''''''\\", "'", "\\", uint8(31))
	f.Add("0000 \"", "0", "0", uint8(22))
	f.Add("00000\b", "0", "0", uint8(7))
	f.Add("000 00", "0", "0", uint8(8))
	f.Add("[secret", "[secret [", "]", uint8(1))
	f.Fuzz(func(t *testing.T, secret, before, after string, which uint8) {
		if len(secret) > 100 || len(before)+len(after) > 300 {
			return
		}
		r := NewRedactor()
		r.AddSecret("S", secret)
		secret = strings.TrimSpace(secret)
		if len(secret) < minSecret {
			return
		}
		e := encodings[int(which)%len(encodings)]
		// An encoding of characters says nothing of bytes that are none, no variable has a NUL,
		// and a dump begins a line.
		// A form writes a plus and a space of a secret of quotes and spaces in ways that are mixed up.
		if strings.IndexByte(secret, 0) >= 0 || e.name == "a form" && len(loose([]byte(secret))) < minSecret || !utf8.ValidString(secret) || e.kind&isJoined != 0 && len(loose([]byte(secret))) < minSecret || e.kind&isASCII != 0 && printed(secret) != secret {
			e = encodings[0]
		}
		if e.kind&hasColumns != 0 {
			before, after = before+"\n", "\n"+after
		}
		if strings.ContainsAny(before[max(0, len(before)-10):], "%\\&") {
			before += " " // else the secret's first character may belong to an escape
		}
		if e.kind&endsOpen != 0 {
			after = " " + after
		}
		hidden := e.encode(secret)
		text := before + hidden + after
		out := r.Text(text)
		if strings.Contains(out, secret) && !strings.Contains(before, secret) && !strings.Contains(after, secret) && !strings.Contains("[secret S]", secret) && !strings.Contains("[***]", secret) || strings.Contains(out, hidden) {
			t.Fatalf("%q as %q in %q became %q", secret, hidden, text, out)
		}
		if again := r.Text(out); again != out {
			t.Fatalf("%q becomes %q when it is redacted again", out, again)
		}
		if got := NewRedactor().Text(text); got != text && len(likely(text)) == 0 {
			t.Fatalf("%q became %q, without a secret", text, got)
		}
	})
}

// TestWhatHasBegunIsShownAsItComes: of a text that comes in pieces, all is shown but its last
// words, and nothing that the whole text does not show.
func TestWhatHasBegunIsShownAsItComes(t *testing.T) {
	secrets := []string{"tr0ub4dor&3 and more", "in reverse: I", "hunter2", "postgres-9f86d081884c7d659a2feaa0c55ad015"}
	r := NewRedactor()
	for _, s := range secrets {
		r.AddSecret("S", s)
	}
	const before, after = "I will look at part.txt, since the log says so. ", "\nAnd I think aloud. "
	for _, e := range encodings {
		if e.kind&hasColumns != 0 {
			continue // a model writes none by hand
		}
		for _, secret := range secrets[:2] {
			text := before + e.encode(secret) + after
			whole := r.Text(text)
			for i := range text {
				now := r.Begun(text[:i])
				if !strings.HasPrefix(whole, now) {
					t.Fatalf("%s: %q is shown of %q, which becomes %q", e.name, now, text[:i], whole)
				}
				if i < len(before) && i-len(now) > 24 {
					t.Errorf("%s: of %q only %q is shown", e.name, text[:i], now)
				}
			}
			whole += strings.Repeat("On and on. ", 12)
			if now := r.Begun(text + strings.Repeat("On and on. ", 12)); len(whole)-len(now) > 24 {
				t.Errorf("%s: of %q only %q is shown", e.name, whole, now)
			}
		}
	}
}
