//go:build linux

package anchor

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/internal/support/proctest"
)

// FuzzVaultPackets deposits under packets of any kind, each with a descriptor,
// and looks afterwards that none was lost: what the vault does not hold is
// closed, and all is when it has been told to forget.
func FuzzVaultPackets(f *testing.F) {
	packet := func(op uint8, slot uint32, kinds ...byte) string {
		m := wire.VaultMessage{Op: op, Ref: wire.Ref{Slot: slot, Gen: 1}, Kinds: kinds}
		return string(m.Append(nil))
	}
	f.Add(packet(wire.VaultPut, 1, wire.FDStdin), packet(wire.VaultDrop, 1, wire.FDStdin), packet(wire.VaultFetch, 0))
	f.Add(packet(wire.VaultPut, 1, wire.FDStdin), packet(wire.VaultPut, 1, wire.FDStdin), packet(wire.VaultMark, 0))
	f.Add(packet(wire.VaultPut, 1, 1, 2), packet(wire.VaultPut, 1, 200), packet(wire.VaultSweep, 0))
	f.Add(packet(wire.VaultMark, 0), packet(wire.VaultPut, wire.VaultGlobal, wire.FDUrgent), packet(99, 3))
	f.Add("", "\x01", packet(wire.VaultItem, 7, 1))
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if len(a)+len(b)+len(c) > 4096 {
			return
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		v := newVault()
		d := connect(t, v)
		for _, p := range []string{a, b, c} {
			// The vault may have hung up after a packet that it did not know.
			if err := unixsock.Send(d.sock, []byte(p), []int{int(w.Fd())}, 0); err != nil && err != unix.EPIPE && err != unix.ECONNRESET {
				t.Fatal(err)
			}
		}
		w.Close()
		d.hangUp()
		for ref := range v.items {
			v.drop(wire.VaultMessage{Ref: ref})
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("read %d, %v", n, err)
		}
	})
}

// FuzzCommand: words that are no command are answered with an error, and the
// descriptors that came along are closed.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"", "nonsense", "roles", "roles\x00more", "listeners", "restart", "restart\x00anchor", "restart\x00server\x00x", "\x00", "serve2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, "\x00")
		switch words[0] {
		case "serve", "shutdown", "release":
			return // these act on a whole daemon; crashtest has them
		case "restart":
			if len(words) == 2 && (words[1] == "server" || words[1] == "keeper") {
				return
			}
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		fd := proctest.Value(unix.Dup(int(w.Fd())))(t)
		w.Close()
		out, send, err := (&anchor{}).command(words, []int{fd})
		if known := words[0] == "roles" || words[0] == "listeners"; known != (err == nil) || known && (len(out) == 0 || out[0] != "ok") || len(send) != 0 {
			t.Errorf("%q was answered %q, %v", words, out, err)
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read %d, %v", n, err)
		}
	})
}

// FuzzFiles: the texts in the run directory, which a person may have touched.
func FuzzFiles(f *testing.F) {
	f.Add("keeper 12 345\nserver 1 2\n", "keeper")
	f.Add("keeper 99999999999999999999 -1\n", "keeper")
	f.Add("tend\x00server\x00\x00", "server")
	f.Fuzz(func(t *testing.T, text, name string) {
		if _, ticks := rundir.ParseRole([]byte(text), name); ticks != 0 && !strings.Contains(text, name) {
			t.Errorf("%q names no %q", text, name)
		}
		if name != "" && !strings.ContainsAny(name, " \t\n\v\f\r\u0085\u00a0") {
			if pid, ticks := rundir.ParseRole(rundir.FormatRoles(rundir.RolePID{Name: name, PID: 12, Ticks: 34}), name); len(strings.Fields(name)) == 1 && strings.Fields(name)[0] == name && (pid != 12 || ticks != 34) {
				t.Errorf("role %q came back as %d %d", name, pid, ticks)
			}
		}
		argv := strings.Split(text, "\x00")
		if got := splitArgv([]byte(strings.Join(argv, "\x00") + "\x00")); !slices.Equal(got, argv) {
			t.Errorf("%q came back as %q", argv, got)
		}
	})
}
