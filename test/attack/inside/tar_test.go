//go:build linux

package inside

import (
	"archive/tar"
	"io"
	"strings"
)

// hostileEntries are archives that would write to a file of the machine, or make what no file is.
func hostileEntries(out string) (all []func(io.Writer) error) {
	up := strings.Repeat("../", 30) + out[1:]
	file := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 7, Mode: 0o6777}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to} }
	for _, headers := range [][]tar.Header{
		{file(up)}, {file(out)}, {link("a", out), file("a")}, {link("a", up), file("a")}, {link("d", "/"), file("d" + out)}, {link("d",
			strings.Repeat("../", 30)), file("d" + out)},
		{link("d", "/proc/1/root"), file("d" + out)}, {link("d", "/proc/self/root"), file("d" + out)}, {hard("a", out),
			file("a")}, {hard("a", up), file("a")}, {link("s", out), hard("a", "s"), file("a")},
		{{Name: "mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1, Mode: 0o666}, file("mem")}, {{Name: "sda", Typeflag: tar.TypeBlock,
			Devmajor: 8, Mode: 0o666}}, {{Name: "f", Typeflag: tar.TypeFifo}, file("f")},
		{{Name: "d/", Typeflag: tar.TypeDir, Mode: 0, PAXRecords: map[string]string{"SCHILY.xattr.user.overlay.opaque": "y",
			"SCHILY.xattr.user.overlay.redirect": out, "SCHILY.xattr.security.capability": "x"}}, file("d/f")},
		{{Name: "white", Typeflag: tar.TypeChar}, {Name: ".wh.etc", Typeflag: tar.TypeReg}}, {file(strings.Repeat("d/",
			3000) + "f")}, {file(strings.Repeat("n", 300))}, {link("l", strings.Repeat("x", 5000))},
	} {
		all = append(all, func(w io.Writer) error {
			t := tar.NewWriter(w)
			for _, h := range headers {
				if err := t.WriteHeader(&h); err != nil {
					return err
				}
				if h.Size > 0 {
					if _, err := t.Write([]byte("written")); err != nil {
						return err
					}
				}
			}
			return t.Close()
		})
	}
	return all
}
