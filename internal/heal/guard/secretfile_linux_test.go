package guard

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestWhichFilesAreSecret(t *testing.T) {
	always := always()
	for path, want := range map[string]bool{
		".env": true, "a/b/Prod.ENV": true, ".env.example": false, "a/.npmrc": true, "keys/server.PEM": true, "home/.ssh/config": true, ".aws/credentials": true,
		".docker/config.json": true, "docker/config.json": false, "x.docker/config.json": false, "src/env.go": false, "src/pem.go": false, "id_rsa.pub": false, "a/id_rsa": true, "rc": false,
	} {
		if got := IsSecret(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
		// A guard has the same opinion of it.
		g := &Guard{rules: always}
		if r := g.denied(path, false); !IsEnv(path[strings.LastIndexByte(path, '/')+1:]) && (r != nil) != want {
			t.Errorf("the rules say of %s: %v", path, r)
		}
	}
}

func TestWhatIsSecretInAFile(t *testing.T) {
	for name, c := range map[string]struct{ text, secret, plain string }{
		".env":                {"# A=former-value\nB=present-value\nNODE_ENV=production\n", "former-value present-value", "production"},
		".npmrc":              {"registry=https://registry.npmjs.org/\n//registry.npmjs.org/:_authToken=abcdefgh-1234\n//r/:_password=\"cGFzc3dvcmQ=\"\n", "abcdefgh-1234 cGFzc3dvcmQ=", "https://registry.npmjs.org/"},
		".netrc":              {"machine api.example.com\n  login somebody\n  password s3cr3t-of-netrc\n", "s3cr3t-of-netrc", "api.example.com somebody"},
		".pgpass":             {"# host:port\nlocalhost:5432:db:user:pg-pass-word\n", "pg-pass-word", "localhost"},
		".pypirc":             {"[pypi]\nusername = __token__\npassword = pypi-secret-value\n", "pypi-secret-value", "username"},
		".git-credentials":    {"https://me:git-pass-word@example.com\n", "git-pass-word", "example.com"},
		".docker/config.json": {`{"auths": {"ghcr.io": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("someone:docker-pass-word")) + `"}}}`, "docker-pass-word", "ghcr.io"},
		".aws/credentials":    {"[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n", "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "[default]"},
		"server.key":          {"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END PRIVATE KEY-----\n", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", "ordinary"},
		"store.jks":           {strings.Repeat("\xfe\xed\x00binary key", 9), strings.Repeat("\xfe\xed\x00binary key", 9), "binary keyboard"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRedactor()
			r.AddFile("some/"+name, []byte(c.text))
			secrets := strings.Fields(c.secret)
			if name == "store.jks" {
				secrets = []string{c.secret[5:70]}
			}
			for _, secret := range secrets {
				if got := r.Text("<" + secret + ">"); strings.Contains(got, secret) || !strings.Contains(got, "[secret ") {
					t.Errorf("%q became %q", secret, got)
				}
			}
			if got := r.Text(c.plain); got != c.plain {
				t.Errorf("%q became %q", c.plain, got)
			}
		})
	}
}

// TestVariablesThatSteer: none by which programs load code, run others, or trust another host.
func TestVariablesThatSteer(t *testing.T) {
	for _, name := range []string{
		"LD_PRELOAD", "node_options", "BUN_OPTIONS", "GOFLAGS", "DOTNET_STARTUP_HOOKS", "OPENSSL_CONF", "https_proxy",
		"NODE_TLS_REJECT_UNAUTHORIZED", "SSL_CERT_FILE", "PIP_INDEX_URL", "UV_INDEX", "RUSTC_WRAPPER",
		"JAVA_OPTS", "LESSOPEN", "PHP_INI_SCAN_DIR", "TS_NODE_PROJECT",
	} {
		if !Steers(name) {
			t.Errorf("%s is set", name)
		}
	}
	for _, name := range []string{"DATABASE_URL", "PORT", "NODE_ENV", "API_KEY", "GOOGLE_ID", "PROXY_HOST", "ENVIRONMENT", "PATHS", "CCC"} {
		if Steers(name) {
			t.Errorf("%s is not set", name)
		}
	}
}

// TestCopiesOfSecretFiles: editors and people leave them beside what they are copies of.
func TestCopiesOfSecretFiles(t *testing.T) {
	for _, name := range []string{
		".env~", "#.env#", ".env.swp", ".Env.Local~", "a/prod.env.bak", ".npmrc.swp", "id_rsa.bak", "id_rsa~",
		".id_rsa.swp", "a/server.KEY.old", ".server.pem.swp", ".netrc.orig~",
	} {
		if !IsSecret(name) {
			t.Errorf("%s is not secret", name)
		}
	}
	for _, name := range []string{"main.go~", ".env.example~", "#notes#", "keys.bak", "~", ".bak", "environment.old"} {
		if IsSecret(name) {
			t.Errorf("%s is secret", name)
		}
	}
	g, root := project(t)
	for _, name := range []string{"id_rsa~", "cert.pem.bak", "tend.yaml~"} {
		proctest.Must(t, os.WriteFile(filepath.Join(root, name), []byte("x"), 0o644))
		if err := g.WriteFile(name, []byte("y")); err == nil {
			t.Errorf("%s is changed", name)
		}
	}
	if _, _, err := g.ReadFile("id_rsa~", 0, 10); err == nil {
		t.Error("a copy of a key is read")
	}
}
