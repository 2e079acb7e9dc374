package playbook

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tend-run/tend/internal/support/proctest"
)

// archive is a package as a registry has it.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for name, text := range files {
		proctest.Must(t, tw.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}))
		proctest.Value(tw.Write([]byte(text)))(t)
	}
	proctest.Must(t, tw.Close())
	proctest.Must(t, zw.Close())
	return b.Bytes()
}

const inPackage = `{ROOT}/node_modules/tiny/index.js:3
  x.y.z
    ^

TypeError: Cannot read properties of undefined (reading 'z')
    at Object.<anonymous> ({ROOT}/node_modules/tiny/index.js:3:7)
    at Object.<anonymous> ({ROOT}/server.js:1:1)

Node.js v20.20.2
`

// TestDamageIsFoundByTheArchive: an error inside of a package is damage if its files are
// not those of the archive that the lock file names, wherever that is; and if they are,
// it is none, whatever the error.
func TestDamageIsFoundByTheArchive(t *testing.T) {
	files := map[string]string{"index.js": "module.exports = 1;\n", "lib/a.js": "exports.a = 1;\n", "package.json": "{}\n"}
	tgz := archive(t, files)
	sum := sha512.Sum512(tgz)
	integrity := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	home := t.TempDir()
	name := hex.EncodeToString(sum[:])
	write(t, filepath.Join(home, ".npm/_cacache/content-v2/sha512", name[:2], name[2:4], name[4:]), tgz)
	books := proctest.Value(Load())(t)
	for _, resolved := range []string{"file:vendor/tiny.tgz", "https://registry.npmjs.org/tiny/-/tiny-1.0.0.tgz"} {
		for what, c := range map[string]struct {
			change  func(dir string)
			plans   int
			scripts bool   // run at its install
			log     string // "": an error inside of the package
		}{
			"nothing":                            {func(string) {}, 0, false, ""},
			"one cut short":                      {func(dir string) { proctest.Must(t, os.Truncate(dir+"/lib/a.js", 3)) }, 1, false, ""},
			"one gone":                           {func(dir string) { proctest.Must(t, os.Remove(dir+"/lib/a.js")) }, 1, false, ""},
			"one changed":                        {func(dir string) { write(t, dir+"/index.js", []byte("module.exports = 2;\n")) }, 1, false, ""},
			"one more":                           {func(dir string) { write(t, dir+"/build/x.js", []byte("1")) }, 0, false, ""},
			"the manifest":                       {func(dir string) { write(t, dir+"/package.json", []byte(`{"name": "tiny"}`)) }, 0, false, ""},
			"another archive":                    {func(dir string) { write(t, dir+"/../../vendor/tiny.tgz", []byte("x")) }, 0, false, ""},
			"its script has put a program there": {func(dir string) { write(t, dir+"/lib/a.js", []byte("\x7fELF and much more than that")) }, 0, true, ""},
			"one of such is gone":                {func(dir string) { proctest.Must(t, os.Remove(dir+"/lib/a.js")) }, 1, true, ""},
			"one of such is empty":               {func(dir string) { write(t, dir+"/lib/a.js", nil) }, 1, true, ""},
			"one of such is shorter":             {func(dir string) { proctest.Must(t, os.Truncate(dir+"/lib/a.js", 3)) }, 1, true, ""},
			"one is gone, but a source is at fault": {func(dir string) { proctest.Must(t, os.Remove(dir+"/lib/a.js")) }, 0, false,
				"Error: Transform failed with 1 error:\n{ROOT}/server.js:3:5: ERROR: Expected \")\" but found \"x\"\n" +
					"    at failureErrorWithLog ({ROOT}/node_modules/tiny/lib/a.js:3:15)\n    at {ROOT}/node_modules/tiny/index.js:7:50\n"},
		} {
			root := makeProject(t, txtar.Parse([]byte("-- head/server.js --\nx\n-- head/package-lock.json --\n"+
				fmt.Sprintf(`{"lockfileVersion": 3, "packages": {"": {}, "node_modules/tiny": {"version": "1.0.0", "resolved": %q, "integrity": %q, "hasInstallScript": %v}}}`,
					resolved, integrity, c.scripts)+"\n")).Files)
			write(t, filepath.Join(root, "vendor/tiny.tgz"), tgz)
			for f, text := range files {
				write(t, filepath.Join(root, "node_modules/tiny", f), []byte(text))
			}
			c.change(filepath.Join(root, "node_modules/tiny"))
			got := books.Match(t.Context(), Evidence{Root: root, Dir: root, Signal: Exit, Env: map[string]string{"HOME": home}, Log: strings.ReplaceAll(cmp.Or(c.log, inPackage), "{ROOT}", root)})
			if len(got) != c.plans || c.plans == 1 && (!got[0].Strong || got[0].Book != "corrupt-node-modules") {
				t.Errorf("%s, %s: %+v", resolved, what, got)
			}
		}
	}
}

// TestDamageOfPythonIsFoundByItsRecord: as above, by the list of files that an install
// leaves.
func TestDamageOfPythonIsFoundByItsRecord(t *testing.T) {
	text := "VERSION = 1\n"
	sum := sha256.Sum256([]byte(text))
	root := makeProject(t, txtar.Parse([]byte(`
-- head/requirements.txt --
Tiny_Lib==1.0
-- head/app.py --
import tiny
-- work/.venv/pyvenv.cfg --
home = /usr
-- work/.venv/lib/python3.11/site-packages/tiny/__init__.py --
`+text+`-- work/.venv/lib/python3.11/site-packages/tiny_lib-1.0.dist-info/RECORD --
tiny/__init__.py,sha256=`+base64.RawURLEncoding.EncodeToString(sum[:])+`,12
tiny_lib-1.0.dist-info/RECORD,,
`)).Files)
	file := filepath.Join(root, ".venv/lib/python3.11/site-packages/tiny/__init__.py")
	e := Evidence{Root: root, Dir: root, Signal: Exit, Argv: []string{".venv/bin/python", "app.py"}, Log: "Traceback (most recent call last):\n  File \"" + root + "/app.py\", line 1, in <module>\n    import tiny\n  File \"" + file + "\", line 9\n    def f(\n         ^\nSyntaxError: '(' was never closed\n"}
	books := proctest.Value(Load())(t)
	if got := books.Match(t.Context(), e); len(got) != 0 {
		t.Errorf("a file as it was installed: %+v", got)
	}
	write(t, file, []byte("def f(\n"))
	want := "corrupt-python-package strong: run " + root + "/.venv/bin/python -m pip install --no-input --disable-pip-version-check --force-reinstall --no-deps -r requirements.txt"
	if got := books.Match(t.Context(), e); len(got) != 1 || say(got[0]) != want {
		t.Errorf("%+v", got)
	}
	e.Log = strings.ReplaceAll(e.Log, file, root+"/app.py")
	if got := books.Match(t.Context(), e); len(got) != 0 {
		t.Errorf("a frame of the project: %+v", got)
	}
}
