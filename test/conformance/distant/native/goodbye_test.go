//go:build linux

package native

import (
	"net"
	"strings"
	"testing"
)

func TestAShutdownIsReported(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.connect(func() (net.Conn, error) { return net.Dial("tcp", d.addr) })
	spawn(t, c, `sh -c "trap 'echo bye; exit 7' TERM; echo hi; while :; do sleep 0.05; done"`)
	if m := one(t, c); m.Type != "proc_stdout" || string(m.Data) != "hi\n" {
		t.Fatalf("%+v", m)
	}
	d.run("shutdown")
	var out strings.Builder
	for {
		switch m := one(t, c); m.Type {
		case "proc_stdout":
			out.Write(m.Data)
		case "proc_stderr": // what the shell says of its sleep
		case "proc_done":
			if out.String() != "bye\n" || m.Success || m.Code != 7 {
				t.Errorf("%q, %+v", out.String(), m)
			}
			return
		default:
			t.Fatalf("%+v", m)
		}
	}
}
